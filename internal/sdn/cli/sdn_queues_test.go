package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/test/must"
)

// TestSDNQueueFile: what is wrong with the queues is said before anything starts.
func TestSDNQueueFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "queues.yaml")
	must.Succeed(t, os.WriteFile(file, []byte("queues: {1: {min: 30%}, 2: {min: 50%}}\nmap: {voip: 3}\n"), 0o600))
	const database = "--ovsdb=unix:/nowhere"
	for says, args := range map[string][]string{
		"VOIP goes to queue 3, and there is none": {"--queues", file, database},
		"--queues needs --ovsdb":                  {"--queues", writeGoodQueues(t)},
		"--queues replaces --ef-max and --af-min": {"--queues", file, "--ef-max", "40%", database},
		"read the queues: open /nowhere":          {"--queues", "/nowhere", database},
		"--ef-max \"half\" is not a percentage":   {"--ef-max", "half", database},
		"--rate eth1=20mbit: given twice":         {"--rate", "eth1=10mbit", "--rate", "eth1=20mbit", database},
		"--rate 20mbit: given twice":              {"--rate", "10mbit", "--rate", "eth1=10mbit", "--rate", "20mbit", database},
		"--rate =20mbit: want PORT=RATE":          {"--rate", "=20mbit", database},
		"neither linux-htb nor linux-noop":        {"--qos", "linux-hfsc", database},
		"--qos needs --ovsdb":                     {"--qos", "linux-noop"},
	} {
		code, _, stderr := run(append([]string{"run"}, args...)...)
		if code != cmdline.Usage || !strings.Contains(stderr, says) {
			t.Errorf("%v: exit code %d: %s, want %q", args, code, stderr, says)
		}
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
