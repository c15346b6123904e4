package qos

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/must"
)

func TestReadMap(t *testing.T) {
	m, err := ReadMap([]byte(`
queues:
  1: {min: 30%, priority: 2}
  2: {min: 20mbit, max: 50%, priority: 0}
  3: {min: 10mbit, priority: 1}
map: {EF: 2, voip: 3, P2P: 0}
`))
	must.Succeed(t, err)
	if m.Levels != [apps.NumLevels]int{2, 1, 0} || len(m.Types) != 2 || m.Types[0] != 3 || m.Types[9] != 0 {
		t.Errorf("%+v", m)
	}
	queues, err := m.Of(100e6)
	must.Succeed(t, err)
	want := []Queue{{0, 40e6, 100e6, 7}, {1, 30e6, 100e6, 2}, {2, 20e6, 50e6, 0}, {3, 10e6, 100e6, 1}}
	for i := range want {
		if i >= len(queues) || queues[i] != want[i] {
			t.Errorf("queue %d: %+v, want %+v", i, queues, want[i])
		}
	}
}

// TestEFBound: the minimum of EF's queue bounds it, without one its maximum.
func TestEFBound(t *testing.T) {
	for text, want := range map[string]uint64{
		"queues: {1: {min: 30%, max: 60%}, 2: {min: 10%}}\nmap: {EF: 1, AF: 2}": 30e6,
		"queues: {1: {max: 60%}, 2: {min: 10%}}\nmap: {EF: 1, AF: 2}":           60e6,
		"queues: {1: {min: 10%}}\nmap: {EF: 0}":                                 100e6,
	} {
		m, err := ReadMap([]byte(text))
		must.Succeed(t, err)
		if got, err := m.EFBound(100e6); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", text, got, err, want)
		}
	}
	m, err := ReadMap([]byte("queues: {1: {min: 200mbit}}\nmap: {EF: 1}"))
	must.Succeed(t, err)
	if _, err := m.EFBound(100e6); err == nil {
		t.Error("a minimum above the rate is accepted")
	}
}

// TestBadMaps: what is wrong is named, and what to do.
func TestBadMaps(t *testing.T) {
	const two = "queues: {1: {min: 30%}, 2: {min: 50%}}\n"
	for text, says := range map[string]string{
		"":                           "queues: is empty",
		"queues: [1, 2]":             "line 1: ",
		"queues: {1: {mim: 3mbit}}":  `line 1: unknown field "mim"`,
		"queues: {8: {min: 1mbit}}":  `"8" is no number of a queue: a port has up to 8, numbered 0 to 7`,
		"queues: {-1: {min: 1mbit}}": "numbered 0 to 7",
		"queues: {ef: {min: 1mbit}}": "numbered 0 to 7",
		"queues: {0: {}, 1: {}, 2: {}, 3: {}, 4: {}, 5: {}, 6: {}, 7: {}, 8: {}}": "a port has up to 8",
		"queues: {1: {min: 1mbit}, 1: {min: 2mbit}}":                              "line 1: ",
		"queues: {1: {min: 30MB}}":                                                "1: min: \"30MB\" has the unit \"MB\": bytes are not accepted",
		"queues: {1: {min: 30}}":                                                  `1: min: "30" `,
		"queues: {1: {min: 1kbit}}":                                               "less than 12000 bit/s",
		"queues: {1: {min: 0%}}":                                                  "no percentage above 0 %",
		"queues: {1: {max: 130%}}":                                                "up to 100 %",
		"queues: {1: {min: x%}}":                                                  "no percentage",
		"queues: {1: {priority: 8}}":                                              "priority 8 is not within 0 (first) and 7",
		"queues: {1: {min: 60%}, 2: {min: 50%}}":                                  "110 % of the rate together: at most 100",
		"queues: {1: {min: 30%}}":                                                 "ef goes to queue 2 unless map says otherwise, and there is none",
		two + "map: {ef: 3}":                                                      "ef goes to queue 3, and there is none",
		two + "map: {voip: 4}":                                                    "VOIP goes to queue 4, and there is none",
		two + "map: {be: 1}":                                                      "be goes to queue 1; it must be 0",
		two + "map: {skype: 1}":                                                   `"skype" is neither a level (ef, af, be) nor an application type (VOIP,`,
		two + "map: {voip: 1, VOIP: 2}":                                           "VOIP is given twice",
		two + "map: {voip: first}":                                                `map: voip: "first" is no number of a queue`,
		two + "map: {ef: 2, EF: 1}":                                               "EF is given twice",
		"queues: {1: {min: 3mbit}, 2: }\nmap: {ef: 1.5}\n":                        `ef: "1.5" is no number`,
	} {
		if _, err := ReadMap([]byte(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestMapDoesNotFit: what cannot be at a port's rate is refused with numbers.
func TestMapDoesNotFit(t *testing.T) {
	for says, m := range map[string]Map{
		"queue 1 has a maximum of 200mbit, more than the port's rate of 100mbit": {Queues: []Spec{{}, {ID: 1, Max: Part{BPS: 200e6}}}},
		"queue 1 has a minimum of 20mbit, more than its maximum of 10mbit":       {Queues: []Spec{{}, {ID: 1, Min: Part{BPS: 20e6}, Max: Part{Fraction: 0.1}}}},
		"are 140mbit together, more than the port's rate of 100mbit":             {Queues: []Spec{{Min: Part{Fraction: 0.5}}, {ID: 1, Min: Part{BPS: 90e6}}}},
	} {
		if q, err := m.Of(100e6); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v, %v, want %q", q, err, says)
		}
	}
}

// TestMinimumsFit: whatever the map, minimums are no more than the rate together,
// and than their maximums, or the map is refused.
func TestMinimumsFit(t *testing.T) {
	part := func(rt *rapid.T, name string) Part {
		switch rapid.IntRange(0, 2).Draw(rt, name) {
		case 0:
			return Part{Fraction: rapid.Float64Range(0.01, 1).Draw(rt, name)}
		case 1:
			return Part{BPS: rapid.Uint64Range(minQueueBPS, 2e8).Draw(rt, name)}
		}
		return Part{}
	}
	rapid.Check(t, func(rt *rapid.T) {
		var m Map
		for id := range rapid.IntRange(1, MaxQueues).Draw(rt, "queues") {
			m.Queues = append(m.Queues, Spec{ID: id, Min: part(rt, "min"), Max: part(rt, "max")})
		}
		rate := rapid.Uint64Range(minRateBPS, 1e10).Draw(rt, "rate")
		queues, err := m.Of(rate)
		if err != nil {
			return
		}
		sum := uint64(0)
		for _, q := range queues {
			sum += q.MinBPS
			if q.MinBPS < minQueueBPS || q.MinBPS > q.MaxBPS || q.MaxBPS > rate {
				rt.Fatalf("%+v of %d", q, rate)
			}
		}
		if sum > rate+MaxQueues*minQueueBPS {
			rt.Fatalf("%d of %d: %+v", sum, rate, queues)
		}
	})
}

// TestOfMarks: marks go to the queue of their class; those of queue 0 need no entry.
func TestOfMarks(t *testing.T) {
	m := Map{Levels: [apps.NumLevels]int{apps.EF: 2, apps.AF: 1, apps.BE: 0}}
	queues := m.OfMarks(By{Field: FieldDSCP})
	for _, mark := range policy.Marks() {
		level, err := apps.ParseLevel(string(mark.Class))
		must.Succeed(t, err)
		queue, there := queues[mark.DSCP]
		if want := m.Levels[level]; queue != want || there != (want != 0) {
			t.Errorf("DSCP %d of class %s goes to queue %d, want %d", mark.DSCP, mark.Class, queue, want)
		}
	}
	if len(queues) == 0 || queues[46] != 2 {
		t.Errorf("expedited forwarding goes to queue %d", queues[46])
	}
}

// TestParseBy: a VLAN priority has the class of its class selector, and skb->mark the number of a queue.
func TestParseBy(t *testing.T) {
	m := Shares{EFMax: 0.5, AFMin: 0.3}.Map()
	for text, want := range map[string]string{
		"PCP": "map[2:1 3:1 4:1 5:2 6:2 7:2]", "mark": "map[1:1 2:2] 4294967295", "mark/0xf0": "map[1:1 2:2] 240", "mark/12": "map[1:1 2:2] 12", "mark/0x80000000": "map[1:1 2:2] 2147483648",
	} {
		by, err := ParseBy(text)
		got := fmt.Sprint(m.OfMarks(by))
		if by.Mask != 0 {
			got += fmt.Sprint(" ", by.Mask)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for text, says := range map[string]string{"tos": "is not dscp", "pcp/7": "is not dscp", "": "is not dscp", "mark/": "no mask", "mark/0": "no mask", "mark/0x1ffffffff": "no mask", "mark/0x101": "not side by side: write for example"} {
		if _, err := ParseBy(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
}

// TestDevice: packets wait at devices of the host, not at patches, tunnels and internal ports.
func TestDevice(t *testing.T) {
	for kind, want := range map[string]bool{"": true, "system": true, "patch": false, "vxlan": false, "internal": false} {
		if p := (Port{Kind: kind}); p.Device() != want {
			t.Errorf("%q: %v", kind, p.Device())
		}
	}
}
