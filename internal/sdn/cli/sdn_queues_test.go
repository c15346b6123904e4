package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/ovsdb"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// TestSDNQueueFile: what is wrong with the queues is said before anything starts.
func TestSDNQueueFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "queues.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("queues: {1: {min: 30%}, 2: {min: 50%}}\nmap: {voip: 3}\n"), 0o600))
	const database = "--ovsdb=unix:/nowhere"
	for says, args := range map[string][]string{
		"VOIP goes to queue 3, and there is none":  {"--queues", file, database},
		"--queues needs --ovsdb":                   {"--queues", writeGoodQueues(t)},
		"--queues replaces --ef-max and --af-min":  {"--queues", file, "--ef-max", "40%", database},
		"read the queues: open /nowhere":           {"--queues", "/nowhere", database},
		"--ef-max \"half\" is not a percentage":    {"--ef-max", "half", database},
		"--rate eth1=20mbit: given twice":          {"--rate", "eth1=10mbit", "--rate", "eth1=20mbit", database},
		"--rate 20mbit: given twice":               {"--rate", "10mbit", "--rate", "eth1=10mbit", "--rate", "20mbit", database},
		"--rate =20mbit: want PORT=RATE":           {"--rate", "=20mbit", database},
		"neither linux-htb nor linux-noop":         {"--qos", "linux-hfsc", database},
		"--qos needs --ovsdb":                      {"--qos", "linux-noop"},
		"--replace needs --ovsdb":                  {"--replace", "--trust", "eth1"},
		"--trust ab:eth1: the port is given twice": {"--trust", "eth1", "--trust", "ab:eth1", "--rate", "10mbit"},
		"--trust eth1: the port is given twice":    {"--trust", "ab:eth1", "--trust", "eth1"},
		"--trust 00ab:eth1: the port is given":     {"--trust", "ab:eth1", "--trust", "00ab:eth1"},
		"--trust br0:eth1: \"br0\" is no datapath": {"--trust", "br0:eth1"},
		"--trust 0:eth1: \"0\" is no datapath":     {"--trust", "0:eth1"},
		"--trust ab:: want PORT or SWITCH:PORT":    {"--trust", "ab:"},
		"--trust eth1=10mbit: want PORT":           {"--trust", "eth1=10mbit"},
		"--trust needs --rate, or --ovsdb":         {"--trust", "eth1"},
	} {
		code, _, stderr := run(append([]string{"run"}, args...)...)
		if code != cmdline.Usage || !strings.Contains(stderr, says) {
			t.Errorf("%v: exit code %d: %s, want %q", args, code, stderr, says)
		}
	}
}

// TestQueuesRemove: --remove says which flags it has no use for.
func TestQueuesRemove(t *testing.T) {
	for _, flag := range []string{"--watch", "--by=pcp"} {
		if code, _, stderr := run("queues", "br0", "--remove", flag); code != cmdline.Usage || !strings.Contains(stderr, "--remove takes neither --by nor --watch") {
			t.Errorf("%s: exit code %d: %s", flag, code, stderr)
		}
	}
}

// TestTrustBound: the bound of EF at a trusted port follows from its queues and its rate: the one given,
// or the one in the database, which of a tap device has none.
func TestTrustBound(t *testing.T) {
	ranges, err := qos.ReadMap([]byte("queues: {1: {}, 2: {max: 40mbit}}\n"))
	must.Succeed(t, err)
	shares := qos.Shares{EFMax: 0.5, AFMin: 0.3}
	for _, c := range []struct {
		queues qos.Map
		given  uint64
		known  uint64
		want   uint64
		says   string
	}{
		{shares.Map(), 100e6, 1e9, 50e6, ""}, {shares.Map(), 0, 1e9, 500e6, ""}, {ranges, 100e6, 0, 40e6, ""},
		{shares.Map(), 0, 0, 0, "its EF is bounded by: give it with --rate eth1=RATE"}, {ranges, 20e6, 0, 0, "more than the port's rate"},
	} {
		trust, err := parseTrust([]string{"ab:eth1"}, ovsdb.Options{RateBPS: c.given, Queues: c.queues}, func(at topology.Port) uint64 {
			return map[topology.Port]uint64{{Switch: 0xab, Number: 1}: c.known}[at]
		})
		must.Succeed(t, err)
		got, err := trust.EFBoundBPS(topology.Port{Switch: 0xab, Number: 1}, "eth1")
		if got != c.want || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	if trust, err := parseTrust(nil, ovsdb.Options{}, nil); trust != nil || err != nil {
		t.Errorf("without --trust: %+v, %v", trust, err)
	}
}

func writeGoodQueues(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "good.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("queues: {1: {min: 30%}, 2: {min: 50%}}\n"), 0o600))
	return file
}

// TestAssign: the controller sends levels and types where the queues are.
func TestAssign(t *testing.T) {
	m, err := qos.ReadMap([]byte("queues: {4: {min: 30%}, 5: {min: 50%}, 6: {}}\nmap: {ef: 5, af: 4, web: 6}\n"))
	must.Succeed(t, err)
	config := core.Config{Queues: core.DefaultQueues()}
	levels := apps.DefaultLevels()
	levels[5] = apps.BE
	assign(&config, m, levels)
	if config.Queues != (core.QueueMap{apps.EF: 5, apps.AF: 4, apps.BE: 0}) {
		t.Errorf("levels: %v", config.Queues)
	}
	if web := config.TypeQueues[5]; len(config.TypeQueues) != 1 || web != (core.TypeQueue{Queue: 6, Level: apps.BE}) {
		t.Errorf("types: %v", config.TypeQueues)
	}
}
