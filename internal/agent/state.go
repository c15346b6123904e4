package agent

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
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// The state file holds what neither the kernel nor the container engines
// know: changes made with `weir set`, which minimums are admitted, what was
// on the uplink before, and how to undo what was done to a container's
// devices. It lives on a file system that a reboot clears, as the kernel's
// state does.

const stateVersion = 1

type stateFile struct {
	Version    int              `json:"version"`
	Uplinks    []*savedUplink   `json:"uplinks"`
	Containers []savedContainer `json:"containers"`
}

type savedUplink struct {
	Name string `json:"name"`
	// Replaced is the queueing that was there before Weir.
	Replaced []kernel.SavedObject `json:"replaced,omitempty"`
	// GSOMaxBytes is what the device was handed at once before.
	GSOMaxBytes uint32 `json:"gso_max_bytes,omitempty"`
}

type savedContainer struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Runtime   string            `json:"runtime"`
	Labels    map[string]string `json:"labels,omitempty"`
	NetNSPath string            `json:"netns_path"`
	Interface string            `json:"interface,omitempty"`
	StartedAt time.Time         `json:"started_at"`
	Number    uint16            `json:"number"`
	// AdmittedBPS is by uplink.
	AdmittedBPS   map[string]uint64 `json:"admitted_bps,omitempty"`
	Override      *v1.Policy        `json:"override,omitempty"`
	Attached      []savedAttachment `json:"attached,omitempty"`
	CgroupPath    string            `json:"cgroup_path,omitempty"`
	HostNetwork   bool              `json:"host_network,omitempty"`
	SharesNetwork string            `json:"shares_network_of,omitempty"`
}

// savedAttachment is a device of a container with what undoes what was done
// to it: where its packets are tied, and how large they were before.
type savedAttachment struct {
	Interface   string       `json:"interface"`
	Tap         identity.Tap `json:"tap"`
	GSOMaxBytes uint32       `json:"gso_max_bytes"`
}

func (s savedContainer) attachments() []attachment {
	var list []attachment
	for _, at := range s.Attached {
		list = append(list, attachment{
			Attachment: identity.Attachment{Interface: at.Interface, Tap: at.Tap},
			gsoBefore:  at.GSOMaxBytes,
		})
	}
	return list
}

// store reads and writes the state file.
type store struct {
	path  string
	state stateFile
	last  []byte
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

// openStore reads the state file, if there is one. A file that cannot be read
// is an error with its line: to go on without it would undo what was set.
func openStore(dir string) (*store, error) {
	s := &store{path: statePath(dir), state: stateFile{Version: stateVersion}}
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what an earlier agent left: %w", err)
	}
	state, err := parseState(data)
	if err != nil {
		return nil, fmt.Errorf("%s:%w; what is in the kernel goes on working. Mend the file, or remove it to start from the containers' labels (changes made with `weir set` are lost then)", s.path, err)
	}
	s.state, s.last = state, data
	return s, nil
}

// parseState reads a state file. Errors start with the line's number.
func parseState(data []byte) (stateFile, error) {
	var state stateFile
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&state)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("something follows the state")
	}
	if err == nil && state.Version != stateVersion {
		err = fmt.Errorf("\"version\" is %d, not %d", state.Version, stateVersion)
	}
	if err == nil {
		err = state.validate()
	}
	if err != nil {
		offset := decoder.InputOffset()
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
		line := 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
		return state, fmt.Errorf("%d: %w", line, err)
	}
	return state, nil
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

func (s stateFile) validate() error {
	names := map[string]bool{}
	for _, u := range s.Uplinks {
		if u == nil || u.Name == "" {
			return errors.New("an uplink has no name")
		}
		if names[u.Name] {
			return fmt.Errorf("uplink %q is there twice", u.Name)
		}
		names[u.Name] = true
	}
	numbers := map[uint16]string{}
	for _, c := range s.Containers {
		if c.ID == "" {
			return fmt.Errorf("container %q has no id", c.Name)
		}
		if other, taken := numbers[c.Number]; taken && c.Number != 0 {
			return fmt.Errorf("containers %q and %q have the same number %d", other, c.ID, c.Number)
		}
		numbers[c.Number] = c.ID
	}
	return nil
}

// save writes the state file if it changed, so that a crash leaves the old
// one or the new one.
func (s *store) save() error {
	data, err := json.MarshalIndent(s.state, "", " ")
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

// uplink is what is remembered of an uplink; a new entry if nothing is.
func (s *store) uplink(name string) *savedUplink {
	for _, u := range s.state.Uplinks {
		if u.Name == name {
			return u
		}
	}
	u := &savedUplink{Name: name}
	s.state.Uplinks = append(s.state.Uplinks, u)
	return u
}

// forget drops what is remembered of an uplink.
func (s *store) forget(name string) {
	s.state.Uplinks = slices.DeleteFunc(s.state.Uplinks, func(u *savedUplink) bool { return u.Name == name })
}

// rename follows an uplink that got another name.
func (s *store) rename(from, to string) error {
	s.uplink(from).Name = to
	return s.save()
}

func (s *store) remove() error {
	if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove state: %w", err)
	}
	return nil
}
