package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/test/must"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func fullState() File {
	return File{
		Version: Version,
		Uplinks: []*Uplink{
			{Name: "up0", Replaced: []Queueing{
				{Handle: 0x10000, Parent: 0xffffffff, Kind: "htb", Options: []byte{0, 1, 0xff}, Nested: true},
				{IsClass: true, Handle: 0x10002, Parent: 0xffffffff, Kind: "htb"},
			}},
			{Name: "up1"},
		},
		Containers: []Container{
			{
				ID: "0123456789abcdef", Name: "web", Runtime: "docker", Labels: map[string]string{"weir.min": "10mbit"},
				NetNSPath: "/proc/1/ns/net", Interface: "eth0", StartedAt: epoch, Number: 16, AdmittedBPS: map[string]uint64{"up0": 10e6},
				Set:      &Set{Weight: ptr[uint32](300), MinBPS: ptr[uint64](10e6), MaxBPS: ptr[uint64](0), Priority: ptr[uint32](0), LatencyMS: ptr(2.5), Class: ptr("ef")},
				Attached: []Attachment{{Interface: "eth0", Tap: Tap{NetNSPath: "/run/netns/hidden", Ifindex: 7, Priority: true}, GSOMaxBytes: 65536}},
			},
			{ID: "fedcba", Runtime: "static", NetNSPath: "/run/netns/x", CgroupPath: "/sys/fs/cgroup/x", HostNetwork: true, SharesNetwork: "cafe"},
		},
	}
}

func TestStateRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	s, err := Open(dir)
	if err != nil || len(s.last) > 0 {
		t.Fatalf("without a file: %v, %+v", err, s)
	}
	s.File = fullState()
	must.Succeed(t, s.Save())
	again, err := Open(dir)
	must.Succeed(t, err)
	if !reflect.DeepEqual(again.File, fullState()) {
		t.Errorf("read %+v\nwrote %+v", again.File, fullState())
	}
	info, err := os.Stat(s.path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}

	for range 2 {
		if err := again.Remove(); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if _, err := os.Stat(s.path); err == nil {
		t.Error("still there after remove")
	}
}

// A file that did not change is not written: the disk of a gateway wears out.
func TestSaveOnlyChanges(t *testing.T) {
	s, err := Open(t.TempDir())
	must.Succeed(t, err)
	s.File = fullState()
	for range 2 {
		must.Succeed(t, s.Save())
	}
	must.Succeed(t, os.WriteFile(s.path, []byte("mark"), 0o600))
	again := &Store{path: s.path, File: s.File, last: s.last}
	must.Succeed(t, again.Save())
	if data, _ := os.ReadFile(s.path); string(data) != "mark" {
		t.Error("what had not changed was written")
	}
	again.File.Containers[0].Number++
	must.Succeed(t, again.Save())
	if data, _ := os.ReadFile(s.path); string(data) == "mark" {
		t.Error("what had changed was not written")
	}
}

// A write that fails or breaks off leaves the old file, and is tried again.
func TestSaveSurvivesACrash(t *testing.T) {
	s, err := Open(t.TempDir())
	must.Succeed(t, err)
	s.File = fullState()
	must.Succeed(t, s.Save())
	good, err := os.ReadFile(s.path)
	must.Succeed(t, err)

	// The new file cannot be written.
	obstacle := s.path + ".new"
	must.Succeed(t, os.Mkdir(obstacle, 0o700))
	s.Containers[0].AdmittedBPS["up0"] = 1
	if err := s.Save(); err == nil {
		t.Error("no error")
	}
	if data, _ := os.ReadFile(s.path); !bytes.Equal(data, good) {
		t.Errorf("the old file became %q", data)
	}
	must.Succeed(t, os.Remove(obstacle))

	// Half of one that an agent wrote when it died.
	must.Succeed(t, os.WriteFile(obstacle, good[:len(good)/2], 0o600))
	next, err := Open(filepath.Dir(s.path))
	if err != nil || !reflect.DeepEqual(next.File, fullState()) {
		t.Errorf("after a crash: %v, %+v", err, next)
	}
	if err := s.Save(); err != nil {
		t.Errorf("save again: %v", err)
	}
	if next, err = Open(filepath.Dir(s.path)); err != nil || next.File.Containers[0].AdmittedBPS["up0"] != 1 {
		t.Errorf("after that: %v, %+v", err, next)
	}
	if _, err := os.Stat(obstacle); err == nil {
		t.Error("the new file was not moved")
	}
}

func TestCorruptState(t *testing.T) {
	data, err := json.MarshalIndent(fullState(), "", " ")
	must.Succeed(t, err)
	good := string(data) + "\n"
	lineOf := func(text, needle string) int {
		before, _, found := strings.Cut(text, needle)
		if !found {
			t.Fatalf("%q is not in the file", needle)
		}
		return 1 + strings.Count(before, "\n")
	}
	for _, tc := range []struct {
		name     string
		old, new string
		line     int // 0: where new is
		says     string
	}{
		{"a comma lost", `"number": 16,`, `"number": 16`, lineOf(good, `"number": 16`) + 1, "invalid character"},
		{"a text for a number", `"number": 16`, `"number": "sixteen"`, 0, "cannot unmarshal string"},
		{"a number too large", `"number": 16`, `"number": 65536`, 0, "cannot unmarshal number 65536"},
		{"not a time", `"2026-01-02T03:04:05Z"`, `"yesterday"`, 0, "yesterday"},
		{"another version", `"version": 2`, `"version": 3`, 0, `"version" is 3, which a newer Weir wrote, and this one reads 2: start that one again`},
		{"no version", `"version": 2`, `"version": 0`, 0, `"version" is 0, and this version of Weir reads 2`},
		{"a container without an id", `"id": "0123456789abcdef"`, `"id": ""`, lineOf(good, `"name": "web"`), `container "web" has no id`},
		{"a number twice", `"number": 0`, `"number": 16`, lineOf(good, `"id": "fedcba"`), `containers "0123456789abcdef" and "fedcba" have the same number 16`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bad := strings.Replace(good, tc.old, tc.new, 1)
			if bad == good {
				t.Fatalf("%q is not in the file", tc.old)
			}
			_, err := parse([]byte(bad))
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("error %v", err)
			}
			line := tc.line
			if line == 0 {
				line = lineOf(bad, tc.new)
			}
			if !strings.HasPrefix(err.Error(), fmt.Sprintf("%d: ", line)) {
				t.Errorf("error %v, want line %d", err, line)
			}
		})
	}
	half := good[:len(good)/2]
	for _, tc := range []struct {
		name, bad string
		line      int
	}{
		{"empty", "", 1},
		{"half", half, 1 + strings.Count(half, "\n")},
		{"twice", good + good, 1 + strings.Count(good, "\n")},
		{"not ours", "\n# a comment\n", 2},
		{"a list", "[]\n", 1},
		{"what a power cut leaves", strings.Repeat("\x00", 300), 1},
	} {
		if _, err := parse([]byte(tc.bad)); err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("%d: ", tc.line)) {
			t.Errorf("%s: error %v, want line %d", tc.name, err, tc.line)
		}
	}
	for uplinks, says := range map[string]string{
		`{"name":"a"},{"name":"a"}`: `uplink "a" is given twice`,
		`{"name":""}`:               "an uplink has no name",
		`null`:                      "an uplink has no name",
	} {
		_, err := parse([]byte(`{"version":2,"uplinks":[` + uplinks + `],"containers":[]}`))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("uplinks %s: error %v", uplinks, err)
		}
	}
	if _, err := parse([]byte(good)); err != nil {
		t.Errorf("the file as it was written: %v", err)
	}
}

// Fields that a later Weir added are ignored, and lost with the next save.
func TestStateOfALaterWeir(t *testing.T) {
	data, err := json.Marshal(fullState())
	must.Succeed(t, err)
	dir := t.TempDir()
	later := bytes.ReplaceAll(data, []byte(`"name":"`), []byte(`"later":[1,{"b":2}],"name":"`))
	must.Succeed(t, os.WriteFile(pathIn(dir), later, 0o600))
	if s, err := Open(dir); err != nil || !reflect.DeepEqual(s.File, fullState()) {
		t.Errorf("read %+v (%v)", s, err)
	}
}

// What the user reads has the file, the line, and what to do.
func TestCorruptStateIsExplained(t *testing.T) {
	dir := t.TempDir()
	path := pathIn(dir)
	must.Succeed(t, os.WriteFile(path, []byte("{\n \"version\": 2,\n \"uplinks\" []\n}\n"), 0o600))
	_, err := Open(dir)
	if err == nil || !strings.HasPrefix(err.Error(), path+":3: ") || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("error %v", err)
	}
	// A folder in its place is not an empty state.
	must.Succeed(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
	if _, err := Open(dir); err == nil {
		t.Error("took a folder for an empty state")
	}
}

// FuzzParseState: whatever is in the file, there is a state or an error with a
// line of the file; and a state that was read is written as one that reads the
// same.
func FuzzParseState(f *testing.F) {
	data, err := json.MarshalIndent(fullState(), "", " ")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:len(data)/2])
	f.Add([]byte(`{"version":2,"uplinks":[{"name":"a"}],"containers":[{"id":"a","number":1},{"id":"b","number":1}]}`))
	f.Add([]byte(`{"version":2,"uplinks":[null],"containers":null,"x":"\u0022"}`))
	f.Add([]byte("\n\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parse(data)
		if err != nil {
			line, _, _ := strings.Cut(err.Error(), ":")
			var n int
			if json.Unmarshal([]byte(line), &n) != nil || n < 1 || n > 1+bytes.Count(data, []byte("\n")) {
				t.Errorf("error %v of %d lines", err, 1+bytes.Count(data, []byte("\n")))
			}
			return
		}
		written, err := json.Marshal(file)
		if err != nil {
			t.Skip(err) // a year that JSON does not have
		}
		again, err := parse(written)
		if err != nil {
			t.Fatalf("wrote %s: %v", written, err)
		}
		if rewritten, _ := json.Marshal(again); !bytes.Equal(rewritten, written) {
			t.Errorf("%s became %s", written, rewritten)
		}
	})
}
