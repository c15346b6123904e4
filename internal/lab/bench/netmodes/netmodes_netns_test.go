//go:build netns

package netmodes

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// TestNetmodesMeasures runs short cases in two modes, with and without the agent:
// what arrives is what the link takes, and everything that is counted is plausible.
// Modes that the kernel lacks are left out and named; macvlan's and ipvlan's devices take turns on the uplink.
func TestNetmodesMeasures(t *testing.T) {
	const linkBPS = 20e6
	report, err := Run(t.Context(), Options{
		Modes:        []string{Native, string(testbed.ModeBridge), string(testbed.ModeIPvlanL2), string(testbed.ModeMacvlan), string(testbed.ModeIPvlanL3)},
		Protocols:    []traffic.Protocol{traffic.TCP, traffic.UDP},
		MessageBytes: []int{1024},
		Containers:   1, LinksBPS: []uint64{linkBPS}, Agent: []bool{false, true},
		RunOptions: measure.RunOptions{Duration: 200 * time.Millisecond, Warmup: 100 * time.Millisecond, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	})
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for _, reason := range report.Unavailable {
		missing++
		if !strings.Contains(reason, testbed.ErrNoIPvlan.Error()) || !strings.Contains(report.Note, reason) {
			t.Errorf("ipvlan is left out for %q, the note: %s", reason, report.Note)
		}
	}
	if missing != 0 && missing != 2 || len(report.Uncontrolled) > 0 {
		t.Errorf("left out: %v, %v", report.Unavailable, report.Uncontrolled)
	}
	if want := (5 - missing) * 2 * 2; len(report.Results) != want {
		t.Errorf("%d results, want %d", len(report.Results), want)
	}
	for _, one := range report.Results {
		name := one.settingName() + ", " + one.what()
		if one.Failure != "" || one.Runs != 1 {
			t.Errorf("%s failed: %s", name, one.Failure)
			continue
		}
		// The bucket that stands for the link holds a millisecond, of 200.
		if wire := one.WireBPS.Median; wire < 0.5*linkBPS || wire > 1.05*linkBPS {
			t.Errorf("%s: %.2f Mbit/s on the wire of a link of 20", name, wire/1e6)
		}
		if payload := one.RateBPS.Median; payload <= 0 || payload >= one.WireBPS.Median {
			t.Errorf("%s: %.0f bit/s of payload, %.0f with headers", name, payload, one.WireBPS.Median)
		}
		if cpu := one.CPU.Median; cpu <= 0 || cpu > 1.1 {
			t.Errorf("%s: the sender's thread ran %.3f s in a second", name, cpu)
		}
		if one.Switches.Median <= 0 {
			t.Errorf("%s: no context switches", name)
		}
	}
}
