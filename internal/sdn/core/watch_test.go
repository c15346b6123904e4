package core

import (
	"fmt"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

const tick = time.Second / LLDPParts

// sendSteadily has a host send packets of a flow for some time, with ticks in between, and returns
// what came out in each millisecond.
func (w *world) sendSteadily(from, to simHost, frame []byte, perMS int, long time.Duration, each func(urgent, other int)) {
	for end := w.now.Add(long); w.now.Before(end); {
		before := w.now
		w.now = w.now.Add(time.Millisecond)
		if w.now.Truncate(tick) != before.Truncate(tick) {
			w.tick()
		}
		w.quiet()
		for range perMS {
			w.send(from.at, frame)
		}
		urgent, other := 0, 0
		for _, d := range w.delivered(to.at) {
			if d.queue == DefaultQueues()[apps.EF] {
				urgent++
			} else {
				other++
			}
		}
		if each != nil {
			each(urgent, other)
		}
	}
}

// A transfer on a port of EF is BE within 100 ms after it shows itself as one, where the switch's
// counters are up to date: when it begins as one, after a conversation, and after silence.
func TestTransfersAreFoundSoon(t *testing.T) {
	for name, before := range map[string]func(w *world, s [3]simHost, proto byte){
		"begins as a transfer": func(*world, [3]simHost, byte) {},
		"after a conversation": func(w *world, s [3]simHost, proto byte) {
			for range 500 {
				w.sendSteadily(s[0], s[1], s[0].frame(s[1], proto, 40000, 5060, 160, 0x10), 1, time.Millisecond, nil)
				w.sendSteadily(s[0], s[1], nil, 0, 19*time.Millisecond, nil)
			}
		},
		"after silence": func(w *world, s [3]simHost, proto byte) {
			w.sendSteadily(s[0], s[1], s[0].frame(s[1], proto, 40000, 5060, 160, 0x10), 1, 10*time.Millisecond, nil)
			w.sendSteadily(s[0], s[1], nil, 0, 20*time.Second, nil)
		},
	} {
		for _, proto := range []byte{flow.TCP, flow.UDP} {
			for _, perMS := range []int{1, 9} { // 11 and 100 Mbit/s
				t.Run(fmt.Sprintf("%s, protocol %d, %d packets a millisecond", name, proto, perMS), func(t *testing.T) {
					w, s := oneSwitch(t, nil)
					before(w, s, proto)
					frame := s[0].frame(s[1], proto, 40000, 5060, 1400, 0x10)
					var shown apps.EFPolicer
					isShown, urgentAfter, took, found := false, 0, time.Duration(0), false
					w.sendSteadily(s[0], s[1], frame, perMS, time.Second, func(urgent, other int) {
						switch is := shown.Sent(time.Millisecond, uint64(perMS), uint64(perMS*len(frame))); {
						case !is:
						case urgent == 0:
							found = true
						default:
							isShown, took, urgentAfter = true, took+time.Millisecond, urgentAfter+urgent*len(frame)
						}
					})
					t.Logf("EF for %v more", took)
					if !isShown || !found || took > 100*time.Millisecond && urgentAfter > 64<<10 {
						t.Errorf("a transfer is found: %v, %v after it shows itself, with %d bytes more of EF; want 100ms or 64 KiB", found, took, urgentAfter)
					}
					w.pass(20 * time.Second)
					if f := w.flowTo(5060); f == nil || f.Verdict.Level != apps.EF {
						t.Errorf("after 20 s of quiet: %+v", f)
					}
				})
			}
		}
	}
}

// More flows of EF than requests take turns, and a transfer among them is found all the same; what
// is steady and small stays EF also where counters come every half second.
func TestManyFlowsOfEF(t *testing.T) {
	w, s := oneSwitch(t, func(c *Config) { c.MaxFlows = 10_000 })
	const flows = 300
	for i := range uint16(flows) {
		w.quiet()
		w.send(s[0].at, s[0].frame(s[1], flow.UDP, 20000+i, 5060, 160, 0))
	}
	frame := s[0].frame(s[1], flow.UDP, 40000, 5060, 1400, 0)
	took := time.Duration(0)
	w.sendSteadily(s[0], s[1], frame, 1, 3*time.Second, func(urgent, _ int) {
		took += time.Duration(urgent) * time.Millisecond
		if w.watched > watchRequests {
			t.Fatalf("%d requests in a tick, want %d at most", w.watched, watchRequests)
		}
		w.watched = 0
	})
	t.Logf("a transfer is EF for %v beside %d flows of EF", took, 2*flows)
	if most := (2*flows/watchRequests + 3) * tick; took > most {
		t.Errorf("a transfer is EF for %v beside %d flows of EF, want %v at most", took, 2*flows, most)
	}
	if n := len(w.core.flows.byKey); n < 2*flows {
		t.Errorf("%d flows", n)
	}
}

// A game of small packets stays EF where the switch's counters lag behind by half a second.
func TestLateCounters(t *testing.T) {
	w, s := oneSwitch(t, nil)
	frame := s[0].frame(s[1], flow.UDP, 40000, 5060, 200, 0)
	w.switches[1].lag = 500 * time.Millisecond
	other := 0
	w.sendSteadily(s[0], s[1], frame, 1, 200*time.Millisecond, nil)
	for range 3000 { // 1.5 Mbit/s
		w.sendSteadily(s[0], s[1], frame, 1, time.Millisecond, func(_, n int) { other += n })
		if w.now.Nanosecond()/1e6%4 == 0 {
			w.sendSteadily(s[0], s[1], nil, 0, time.Millisecond, nil)
		}
	}
	if f := w.flowTo(5060); f == nil || f.Verdict.Level != apps.EF || other > 0 {
		t.Errorf("%d packets are not EF: %+v", other, f)
	}
}

// The counters of EF at many switches are requested in parts, so that no decision waits for all of them.
// All switches together get watchTotal requests in a tick, or as many as flows are due if fewer are.
// Requests that a switch does not need go to other switches. Where there are more switches than requests, switches take turns.
func TestWatchInParts(t *testing.T) {
	const few = 3*WatchParts - 1
	for name, test := range map[string]watchTest{
		"few flows":                   {switches: few, flows: 1, inTick: 2 * few, least: 2, most: 2},
		"many flows":                  {switches: few, flows: 20, inTick: watchTotal, least: watchTotal / few, most: watchTotal/few + 1},
		"one busy switch":             {switches: 64, flows: 1, busy: 200, inTick: 2*63 + watchRequests, least: 2, most: watchRequests},
		"one of many is less busy":    {switches: few, flows: 20, busy: 1, inTick: watchTotal, least: 2, most: watchTotal/few + 1},
		"more switches than requests": {switches: watchTotal + 88, flows: 1, inTick: watchTotal, least: 0, most: 1},
	} {
		t.Run(name, test.run)
	}
}

// watchTest is a number of switches with flows in two directions each, but for the last one, which has
// busy if that is not 0, and the requests that these should get in a tick: all switches, and each of them.
type watchTest struct {
	switches            int
	flows, busy         uint16
	inTick, least, most int
}

func (test watchTest) flowsOf(d topology.DPID) uint16 {
	if test.busy != 0 && int(d) == test.switches-1 {
		return test.busy
	}
	return test.flows
}

func (test watchTest) run(t *testing.T) {
	inTicks := map[topology.DPID]int{}
	const ticks = 3
	now := time.Unix(1e9, 0)
	c := New(Config{Queues: DefaultQueues(), IdleTimeoutSeconds: 30, MaxFlows: 1e4, LLDPInterval: time.Second, StatsInterval: time.Hour, SecondLook: true})
	for d := range topology.DPID(test.switches) {
		c.Connected(now, Description{Features: &openflow.FeaturesReply{DatapathID: uint64(d + 1)}, Ports: []openflow.PortDesc{{PortNo: 1}, {PortNo: 2}}})
	}
	now = now.Add(3 * time.Second)
	for d := range topology.DPID(test.switches) {
		left, right := simHostAt(at(d+1, 1), 1), simHostAt(at(d+1, 2), 2)
		left.mac[3], left.mac[4], right.mac[3], right.mac[4] = byte(d>>8), byte(d), byte(d>>8), byte(d)
		send := func(port uint32, frame []byte) {
			f, _ := ReadFrame(frame)
			c.PacketIn(now, d+1, &openflow.PacketIn{Data: frame, Match: openflow.Match{Fields: []openflow.OXM{inPort(port)}}}, &f, Verdict{Level: apps.EF})
		}
		send(2, right.broadcast())
		for n := range test.flowsOf(d) {
			send(1, left.frame(right, flow.UDP, 40000+n, 5060, 160, 0))
		}
	}
	c.Tick(now) // requests no counters yet
	rest := Parts{c}
	for range ticks {
		now = now.Add(tick)
		asked, parts := map[topology.DPID]int{}, 0
		for commands := c.Tick(now); ; commands = rest.SendNext(now) {
			part := map[topology.DPID]bool{}
			for _, command := range commands {
				if m, ok := command.Message.(*openflow.MultipartRequest); ok && m.XID == WatchXID {
					asked[command.Switch]++
					part[command.Switch] = true
				}
			}
			if parts++; len(part) > (min(test.switches, watchTotal)+WatchParts-1)/WatchParts {
				t.Fatalf("a part has requests to %d switches", len(part))
			}
			if !rest.HasMore() {
				break
			}
		}
		sum := 0
		for d := range topology.DPID(test.switches) {
			n := asked[d+1]
			sum += n
			inTicks[d+1] += n
			if n < test.least || n > test.most {
				t.Errorf("%d requests to switch %v, want %d to %d", n, d+1, test.least, test.most)
			}
		}
		if sum != test.inTick {
			t.Errorf("%d requests in a tick, want %d", sum, test.inTick)
		}
		if parts > WatchParts {
			t.Errorf("%d parts", parts)
		}
	}
	for d := range topology.DPID(test.switches) {
		if n, want := inTicks[d+1], ticks*min(2*int(test.flowsOf(d)), watchRequests); n < min(want, ticks*watchTotal/test.switches) {
			t.Errorf("%d requests to switch %v in %d ticks", n, d+1, ticks)
		}
	}
}
