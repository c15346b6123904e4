// Package state reads and writes the state file, which outlives the agent. The file holds what
// neither the kernel nor the container engines know: changes made with `weir set`, admitted
// minimums, the previous configuration of uplinks, and how to undo changes to containers' devices.
// It is on a file system that a reboot clears, as the kernel's state is.
//
// Its types (fields.go) are separate from those of all other packages. A field added without changing
// the meaning of others keeps the version: an earlier Weir ignores unknown fields. Any other change
// needs a new version, which an earlier Weir refuses.
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
	"slices"
	"strings"
)

// Store reads and writes the state file.
type Store struct {
	// File is the content that Save writes.
	File

	path string
	last []byte
}

// pathIn returns the path of the state file in a directory.
func pathIn(dir string) string { return filepath.Join(dir, "state.json") }

// Open reads the state file, if it exists. An unreadable file is an error with its line, because
// continuing without it would drop policies that users have set.
func Open(dir string) (*Store, error) {
	s := &Store{path: pathIn(dir), File: File{Version: Version}}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what an earlier agent left: %w", err)
	}
	file, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s:%w; what is in the kernel goes on working. Mend the file, or remove it to start from the containers' labels (changes made with `weir set` are lost then)", s.path, err)
	}
	s.File, s.last = file, data
	return s, nil
}

// parse reads a state file. Errors start with the line's number.
func parse(data []byte) (File, error) {
	var file File
	decoder := json.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&file)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("there is data after the state")
	}
	switch {
	case file.Version > Version: // another version may use other types
		err = fmt.Errorf("\"version\" is %d, which a newer Weir wrote, and this one reads %d: start that one again, or run its `weir down` before going back", file.Version, Version)
	case err == nil && file.Version != Version:
		err = fmt.Errorf("\"version\" is %d, and this version of Weir reads %d", file.Version, Version)
	case err == nil:
		err = file.validate()
	}
	if err != nil {
		return file, fmt.Errorf("%d: %w", lineOf(err, data, decoder.InputOffset()), err)
	}
	return file, nil
}

// lineOf returns the line of a decoding error, where data was read up to offset.
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

// lastNamed returns the last offset in data of any text that the error message quotes, or otherwise
// if none occurs. The quoted name is the only hint to the place of such an error.
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

// Save writes the state file if it changed. A crash leaves either the old file or the new one.
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

// Uplink returns the entry of the device with that name and index, or a new entry. Devices are
// identified by index, as names may change or be swapped. From the entry of another device that had
// the name, only the host class's totals are kept: its queueing and packet limit belong to that
// other device.
func (s *Store) Uplink(name string, ifindex int) *Uplink {
	named := s.find(func(u *Uplink) bool { return u.Name == name })
	own := s.find(func(u *Uplink) bool { return u.Ifindex == ifindex && ifindex != 0 })
	switch {
	case own != nil && named != nil:
		// Names are unique. The entry that had this name gets the other name: most likely that is
		// its device's new one, and its device corrects it later.
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

// NameOf returns the saved name of the device with that index, or "".
func (s *Store) NameOf(ifindex int) string {
	if u := s.find(func(u *Uplink) bool { return u.Ifindex == ifindex }); u != nil {
		return u.Name
	}
	return ""
}

// IndexOf returns the index of the device that had this name; 0 if unknown.
func (s *Store) IndexOf(name string) int {
	if u := s.find(func(u *Uplink) bool { return u.Name == name }); u != nil {
		return u.Ifindex
	}
	return 0
}

// find returns the first entry for which is returns true, or nil.
func (s *Store) find(is func(*Uplink) bool) *Uplink {
	if i := slices.IndexFunc(s.Uplinks, is); i >= 0 {
		return s.Uplinks[i]
	}
	return nil
}

// Forget drops the entry of an uplink.
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
