package static

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/test/must"
)

// watch runs a source until the test ends.
func watch(t *testing.T, containers ...discovery.Container) <-chan discovery.Event {
	t.Helper()
	events := make(chan discovery.Event)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	source := New("config", containers, nil)
	go func() { done <- source.Run(ctx, events) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return events
}

func next(t *testing.T, events <-chan discovery.Event) discovery.Event {
	t.Helper()
	select {
	case e := <-events:
		if e.Source != "config" {
			t.Errorf("event of source %q", e.Source)
		}
		return e
	case <-time.After(30 * time.Second):
		t.Fatal("no event")
	}
	return discovery.Event{}
}

func TestWhatIsThereIsInTheSnapshot(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	must.Succeed(t, os.WriteFile(plain, nil, 0o644))
	e := next(t, watch(t,
		discovery.Container{Name: "me", NetNSPath: "/proc/self/ns/net", Labels: map[string]string{"weir.weight": "3"}, Interface: "eth9"},
		discovery.Container{Name: "host", HostNetwork: true},
		discovery.Container{ID: "given", NetNSPath: "/proc/thread-self/ns/net"},
		discovery.Container{Name: "absent", NetNSPath: "/run/netns/none-such"},
		discovery.Container{Name: "plain file", NetNSPath: plain},
		discovery.Container{Name: "other kind", NetNSPath: "/proc/self/ns/mnt"},
	))
	if e.Snapshot == nil || len(e.Snapshot.Containers) != 3 {
		t.Fatalf("got %+v", e)
	}
	me, host, given := e.Snapshot.Containers[0], e.Snapshot.Containers[1], e.Snapshot.Containers[2]
	if me.ID != "static:me" || me.Runtime != "static" || me.Labels["weir.weight"] != "3" || me.Interface != "eth9" || !me.HostNetwork {
		t.Errorf("got %+v", me)
	}
	if host.ID != "static:host" || !host.HostNetwork || given.ID != "given" || given.Name != "/proc/thread-self/ns/net" {
		t.Errorf("got %+v and %+v", host, given)
	}
}

func TestPathThatIsNoMountIsPolled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net")
	events := watch(t, discovery.Container{Name: "one", NetNSPath: path})
	if e := next(t, events); e.Snapshot == nil || len(e.Snapshot.Containers) != 0 {
		t.Fatalf("got %+v", e)
	}
	must.Succeed(t, os.Symlink("/proc/self/ns/net", path))
	if e := next(t, events); e.Updated == nil || e.Updated.Name != "one" || e.Updated.NetNSPath != path {
		t.Fatalf("got %+v", e)
	}
	must.Succeed(t, os.Remove(path))
	if e := next(t, events); e.RemovedID != "static:one" {
		t.Fatalf("got %+v", e)
	}
}

func TestProcessStartStaysTheSame(t *testing.T) {
	first, err := processStart("self")
	must.Succeed(t, err)
	if age := time.Since(first); age < 0 || age > time.Hour {
		t.Errorf("this process started %v ago", age)
	}
	for range 20 {
		time.Sleep(7 * time.Millisecond)
		if again, err := processStart("self"); err != nil || !again.Equal(first) {
			t.Fatalf("started at %v, then at %v, %v", first, again, err)
		}
	}
}

func TestSameIDTwiceIsAnError(t *testing.T) {
	source := New("config", []discovery.Container{{Name: "a", HostNetwork: true}, {Name: "a", HostNetwork: true}}, nil)
	if err := source.Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "static:a is listed twice") {
		t.Errorf("got %v", err)
	}
}

func TestParseStartTime(t *testing.T) {
	const after = " S 1 1 1 0 -1 4194560 1 1 1 1 1 1 1 1 20 0 1 0 12345 1 1"
	for stat, want := range map[string]time.Duration{
		"42 (cat)" + after:          123450 * time.Millisecond,
		"42 (a) b) (c d)" + after:   123450 * time.Millisecond,
		"42 (cat) S 1 1":            -1,
		"":                          -1,
		"42 cat S":                  -1,
		"1 (x) " + longField("1e9"): -1,
		"1 (x) " + longField("18446744073709551615"): -1,
	} {
		got, err := parseStartTime([]byte(stat))
		if want < 0 && err == nil || want >= 0 && (err != nil || got != want) {
			t.Errorf("parseStartTime(%q) = %v, %v; want %v", stat, got, err, want)
		}
	}
}

func longField(text string) string { return strings.Repeat("0 ", 19) + text }

func FuzzParseStartTime(f *testing.F) {
	f.Add("42 (a) b) S " + longField("7"))
	f.Fuzz(func(t *testing.T, stat string) {
		if d, err := parseStartTime([]byte(stat)); err == nil && d < 0 {
			t.Errorf("parseStartTime(%q) = %v", stat, d)
		}
	})
}

func FuzzParseBootTime(f *testing.F) {
	f.Add("cpu 1 2\nbtime 1700000000\n")
	f.Fuzz(func(t *testing.T, stat string) {
		if at, err := parseBootTime([]byte(stat)); err == nil && at.IsZero() {
			t.Errorf("parseBootTime(%q) is zero", stat)
		}
	})
}
