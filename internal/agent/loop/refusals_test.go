package loop

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// What of a policy cannot be put into force is in the log, once for as long as that is
// so, and that it is in force again as well.
func TestRefusalsAreLogged(t *testing.T) {
	b := newBench(t, 100e6)
	var log bytes.Buffer
	b.containers.log = slog.New(slog.NewTextHandler(&log, nil))
	said := func() []string {
		t.Helper()
		b.reconcile()
		var lines []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, `msg="policy is `) {
				lines = append(lines, line)
			}
		}
		log.Reset()
		return lines
	}
	expect := func(what string, lines []string, want ...string) {
		t.Helper()
		if len(lines) != len(want) {
			t.Errorf("%s: the log says %q", what, lines)
			return
		}
		for i, text := range want {
			if !strings.Contains(lines[i], text) {
				t.Errorf("%s: the log says %q, want %q", what, lines[i], text)
			}
		}
	}

	camera, web := b.start("camera", "min=60mbit"), b.start("web", "min=50mbit", "latency=20ms")
	expect("both refused", said(),
		`level=WARN msg="policy is not in force" name=web reason="minimum 50mbit cannot be guaranteed: 35mbit is free`,
		`level=WARN msg="policy is not in force" name=web reason="latency 20ms cannot be guaranteed`)
	expect("the same again", said())

	// Less is free, and that is no news. To ask for something else is.
	other := b.start("other", "min=5mbit")
	expect("less is free", said())
	if web.refused == nil || !strings.Contains(web.refused.Error(), "30mbit is free") {
		t.Fatalf("refused: %v", web.refused)
	}
	b.label(web, "min=40mbit")
	expect("another minimum", said(), `level=WARN msg="policy is not in force" name=web reason="minimum 40mbit`)

	// Another container that leaves makes room.
	b.stop(other)
	b.stop(camera)
	expect("there is room", said(), `level=INFO msg="policy is in force again" name=web`)

	// A class that the kernel has no room for.
	b.classifier.err = errors.New("no room")
	auto := b.start("auto", "class=ef")
	expect("no class", said(), `name=auto reason="no room"`)
	b.classifier.err = nil
	expect("a class", said(), `msg="policy is in force again" name=auto`)

	// Received traffic is not shared.
	b.start("limited", "in.max=8mbit")
	expect("no --in-rate", said(), `name=limited reason="its values for received traffic have no effect at up0: give --in-rate, or in_rate in the config file"`)
	expect("no --in-rate, again", said())

	// Why it is not controlled counts, unless that may be over in a moment.
	b.containers.release(auto.container)
	auto.container.Obstacle, auto.container.Unattached = "its network is being changed", true
	expect("for a moment", said())
	auto.container.Obstacle, auto.container.Unattached = "all of it is the host's", false
	expect("for longer", said(), `level=WARN msg="policy is not in force" name=auto reason="all of it is the host's"`)
}
