// Package state is the file that outlives the agent. It holds what neither the
// kernel nor the container engines know: changes made with `weir set`, which
// minimums are admitted, what was on the uplink before, and how to undo what was
// done to a container's devices. It lives on a file system that a reboot clears, as
// the kernel's state does.
//
// Its types are those of the file (file.go), and nobody else's. The file has a
// version; that of the Weir before is read, too (version1.go). What a later Weir adds
// without changing the meaning of what there is keeps the version: an earlier one leaves
// it out (unknown.go). Anything else is a new version, which an earlier one refuses.
package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Store reads and writes the state file.
type Store struct {
	// File is what Save writes.
	File
	// Unknown are names in the file that was read that this version of Weir does not
	// know: the next Save leaves them out.
	Unknown []string

	path string
	last []byte
}

// pathIn is the state file's in a directory.
func pathIn(dir string) string { return filepath.Join(dir, "state.json") }

// Open reads the state file, if there is one. A file that cannot be read is an
// error with its line: to go on without it would undo what was set.
func Open(dir string) (*Store, error) {
	s := &Store{path: pathIn(dir), File: File{Version: Version}}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what an earlier agent left: %w", err)
	}
	file, unknown, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s:%w; what is in the kernel goes on working. Mend the file, or remove it to start from the containers' labels (changes made with `weir set` are lost then)", s.path, err)
	}
	s.File, s.Unknown, s.last = file, unknown, data
	return s, nil
}

// parse reads a state file of this version or the one before, and says what in it a later
// Weir must have added. Errors start with the line's number.
func parse(data []byte) (file File, unknown []string, err error) {
	var peek struct{ Version int }
	// What is wrong is found with its line below.
	_ = json.Unmarshal(data, &peek)
	var offset int64
	switch {
	case peek.Version > Version:
		err = fmt.Errorf("\"version\" is %d, which a newer Weir wrote, and this one reads 1 and %d: start that one again, or run its `weir down` before going back", peek.Version, Version)
	case peek.Version == 1:
		var old fileV1
		offset, err = decode(data, &old, true)
		file = old.upgrade()
	default:
		offset, err = decode(data, &file, false)
		unknown = unknownFields(data, reflect.TypeFor[File]())
		if err == nil && file.Version != Version {
			err = fmt.Errorf("\"version\" is %d, and this version of Weir reads 1 and %d", file.Version, Version)
		}
	}
	if err == nil {
		err = file.validate()
	}
	if err != nil {
		return file, nil, fmt.Errorf("%d: %w", lineOf(err, data, offset), err)
	}
	return file, unknown, nil
}

// decode reads one JSON value and nothing after it; strictly, if it may have no name that
// dst has no field for. It returns how far it read.
func decode(data []byte, dst any, strictly bool) (int64, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if strictly {
		decoder.DisallowUnknownFields()
	}
	err := decoder.Decode(dst)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("something follows the state")
	}
	return decoder.InputOffset(), err
}

// lineOf is the line that an error is about, where data was read up to offset.
func lineOf(err error, data []byte, offset int64) int {
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		offset = int64(len(data))
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &typ):
		offset = typ.Offset
	default:
		offset = lastNamed(err.Error(), data, offset)
	}
	return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
}

// lastNamed is where in data the last of the texts is that an error names in
// quotes, which is all that is known of its place; otherwise if none is there.
func lastNamed(message string, data []byte, otherwise int64) int64 {
	last := -1
	for i, text := range strings.Split(message, `"`) {
		if i%2 == 1 {
			last = max(last, bytes.LastIndex(data, []byte(`"`+text+`"`)))
		}
	}
	if last < 0 {
		return otherwise
	}
	return int64(last)
}

// Save writes the state file if it changed, so that a crash leaves the old
// one or the new one.
func (s *Store) Save() error {
	data, err := json.MarshalIndent(s.File, "", " ")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	data = append(data, '\n')
	if bytes.Equal(data, s.last) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o755); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	temporary := s.path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	if err := os.Rename(temporary, s.path); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	s.last = data
	return nil
}

// Uplink is what is remembered of the device with that name and index; a new entry
// if nothing is. A device is known by its index, as names may change, and be swapped.
// Of another device that had the name only what the host class sent is kept: its
// queueing and its packet limit are not those of the one that is there now.
func (s *Store) Uplink(name string, ifindex int) *Uplink {
	named := s.find(func(u *Uplink) bool { return u.Name == name })
	own := s.find(func(u *Uplink) bool { return u.Ifindex == ifindex && ifindex != 0 })
	switch {
	case own != nil && named != nil:
		// A name is there once. Whose it was has another: most likely this one's,
		// and it says so itself later.
		own.Name, named.Name = named.Name, own.Name
	case own != nil:
		own.Name = name
	case named == nil:
		own = &Uplink{Name: name, Ifindex: ifindex}
		s.Uplinks = append(s.Uplinks, own)
	case named.Ifindex == 0:
		named.Ifindex, own = ifindex, named
	default:
		*named, own = Uplink{Name: name, Ifindex: ifindex, Host: named.Host}, named
	}
	return own
}

// NameOf is the name by which the device of an index is remembered; "" if it is not.
func (s *Store) NameOf(ifindex int) string {
	if u := s.find(func(u *Uplink) bool { return u.Ifindex == ifindex }); u != nil {
		return u.Name
	}
	return ""
}

// find is the first entry of which is says so; nil if there is none.
func (s *Store) find(is func(*Uplink) bool) *Uplink {
	if i := slices.IndexFunc(s.Uplinks, is); i >= 0 {
		return s.Uplinks[i]
	}
	return nil
}

// Forget drops what is remembered of an uplink.
func (s *Store) Forget(name string) {
	s.Uplinks = slices.DeleteFunc(s.Uplinks, func(u *Uplink) bool { return u.Name == name })
}

// Remove deletes the file.
func (s *Store) Remove() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}
