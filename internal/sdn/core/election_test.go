package core

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// control is what a switch keeps of several controllers, as the specification has
// it ("Multiple Controllers", section 7.3.9).
type control struct {
	known      bool
	generation uint64
	roles      map[*world]openflow.Role
	stale      int // requests that were refused as such
}

// allows tells whether a switch carries out a message, and answers what is about
// roles.
func (c *control) allows(w *world, s *simSwitch, m openflow.Message) bool {
	refuse := func(kind openflow.ErrorType, code uint16) {
		w.do(w.core.Error(w.now, s.dpid, &openflow.ErrorMessage{ErrorType: kind, Code: code}))
	}
	switch m := m.(type) {
	case *openflow.RoleRequest:
		if m.Role == openflow.OFPCR_ROLE_MASTER || m.Role == openflow.OFPCR_ROLE_SLAVE {
			if c.known && int64(m.GenerationID-c.generation) < 0 {
				c.stale++
				refuse(openflow.OFPET_ROLE_REQUEST_FAILED, uint16(openflow.OFPRRFC_STALE))
				return false
			}
			c.known, c.generation = true, m.GenerationID
		}
		if m.Role == openflow.OFPCR_ROLE_MASTER {
			for other, role := range c.roles {
				if role == openflow.OFPCR_ROLE_MASTER {
					c.roles[other] = openflow.OFPCR_ROLE_SLAVE
				}
			}
		}
		if m.Role != openflow.OFPCR_ROLE_NOCHANGE {
			c.roles[w] = m.Role
		}
		reply := &openflow.RoleReply{RoleState: openflow.RoleState{Role: c.roles[w], GenerationID: ^uint64(0)}}
		if c.known {
			reply.GenerationID = c.generation
		}
		w.do(w.core.RoleReply(w.now, s.dpid, reply))
		return false
	case *openflow.FlowMod, *openflow.PacketOut:
		if c.roles[w] == openflow.OFPCR_ROLE_SLAVE {
			refuse(openflow.OFPET_BAD_REQUEST, uint16(openflow.OFPBRC_IS_SLAVE))
			return false
		}
	}
	return true
}

// heardBy are the controllers that a switch sends packets and ends of flows to.
func (s *simSwitch) heardBy(w *world) []*world {
	if s.control == nil {
		if w.away[s.dpid] {
			return nil
		}
		return []*world{w}
	}
	var out []*world
	for one, role := range s.control.roles {
		if role != openflow.OFPCR_ROLE_SLAVE && !one.away[s.dpid] {
			out = append(out, one)
		}
	}
	return out
}

const takeoverAfter = 4 * time.Second

// several are controllers of the same two switches, between which there is a
// cable, with a host at each; none is connected yet.
type several struct {
	all  []*world
	dead map[*world]bool
}

func newSeveral(t testing.TB, n int) *several {
	s := &several{dead: map[*world]bool{}}
	for i := range n {
		w := newWorld(t, func(c *Config) {
			c.TakeoverAfter, c.Claim, c.LLDPKey[1], c.FirstFlowID = takeoverAfter, Claim(uint8(100-i), uint16(i)), byte(i), uint64(i)<<32
		})
		s.all = append(s.all, w)
		if i == 0 {
			w.add(1, 2)
			w.add(2, 2)
			w.cable(at(1, 2), at(2, 2))
			for _, one := range w.switches {
				one.control = &control{roles: map[*world]openflow.Role{}}
			}
		} else { // the same network
			first := s.all[0]
			w.switches, w.cables, w.got = first.switches, first.cables, first.got
		}
	}
	return s
}

// pass lets time go by for all that are alive.
func (s *several) pass(d time.Duration) {
	for ; d > 0; d -= 250 * time.Millisecond {
		for _, w := range s.all {
			if s.dead[w] {
				w.now = w.now.Add(250 * time.Millisecond)
			} else {
				w.pass(250 * time.Millisecond)
			}
			w.packets = 0
		}
	}
}

// cut ends the connection of a controller to a switch.
func (w *world) cut(d topology.DPID) {
	w.away[d] = true
	delete(w.switches[d].control.roles, w)
	w.core.Disconnected(w.now, d)
}

// masters are the controllers that are masters of a switch and know it.
func (s *several) masters(d topology.DPID) (out []*world) {
	for _, w := range s.all {
		role := w.switches[d].control.roles[w]
		if w.core.Controls(d) && role == openflow.OFPCR_ROLE_MASTER {
			out = append(out, w)
		}
	}
	return out
}

// onlyMaster fails unless one controller is the master of both switches and all
// others stand by.
func (s *several) onlyMaster(t interface{ Fatalf(string, ...any) }) *world {
	var master *world
	for d := range s.all[0].switches {
		m := s.masters(d)
		if len(m) != 1 || master != nil && m[0] != master {
			t.Fatalf("switch %v has %d masters: %s", d, len(m), s)
		}
		master = m[0]
	}
	for _, w := range s.all {
		if w != master && !s.dead[w] && w.core.Leading() {
			t.Fatalf("two lead: %s", s)
		}
	}
	return master
}

func (s *several) String() string {
	text := ""
	for i, w := range s.all {
		text += fmt.Sprintf("%d: leading %v mine %x newest %x", i, w.core.election.leading, w.core.election.mine, w.core.election.newest)
		for d, one := range w.switches {
			text += fmt.Sprintf(", on %d %v of %x", d, one.control.roles[w], one.control.generation)
		}
		text += "; "
	}
	return text
}

func (s *several) connectAll() {
	for _, w := range s.all {
		w.connectAll()
	}
}

// TestTakeover: the standby takes over from a master that is gone; what the master
// had set stays, and new flows get entries on the whole path. The old master, which
// believes that it leads, finds out and does not fight back.
func TestTakeover(t *testing.T) {
	s := newSeveral(t, 2)
	a, b := s.all[0], s.all[1]
	s.connectAll()
	s.pass(4 * time.Second)
	if m := s.onlyMaster(t); m != a {
		t.Fatalf("the one with the lower priority leads: %s", s)
	}
	left, right := simHostAt(at(1, 1), 1), simHostAt(at(2, 1), 2)
	for _, one := range []simHost{left, right} {
		a.send(one.at, one.broadcast())
	}
	a.quiet()
	send := func(port uint16) delivery {
		t.Helper()
		a.quiet() // of LLDP
		a.send(left.at, left.frame(right, flow.UDP, 40000, port, 40, 0))
		got := a.delivered(right.at)
		if len(got) != 1 {
			t.Fatalf("to port %d: %d came out", port, len(got))
		}
		return got[0]
	}
	send(53)
	if q := send(53).queue; q != a.core.cfg.Queues[apps.EF] {
		t.Errorf("queue %d", q)
	}
	s.pass(6 * time.Second) // statistics
	shown := b.core.Snapshot(true)
	if len(shown.Flows) == 0 || len(shown.Switches) != 2 || shown.Switches[0].Role != openflow.OFPCR_ROLE_SLAVE || b.core.counters.PacketIns+b.core.counters.Installed > 0 {
		t.Errorf("the standby has %+v", shown)
	}
	before := cookies(a)

	s.dead[a] = true
	for d := range a.switches {
		a.away[d] = true
	}
	if q := send(53).queue; q != a.core.cfg.Queues[apps.EF] {
		t.Errorf("without a master: queue %d", q)
	}
	s.pass(2 * takeoverAfter)
	s.pass(4 * time.Second) // links and statistics
	if m := s.onlyMaster(t); m != b {
		t.Fatalf("nobody took over: %s", s)
	}
	if q := send(53).queue; q != a.core.cfg.Queues[apps.EF] {
		t.Errorf("after the takeover: queue %d", q)
	}
	for cookie := range before {
		if !cookies(a)[cookie] {
			t.Errorf("entry %x is gone", cookie)
		}
	}
	for _, one := range []simHost{left, right} {
		a.send(one.at, one.broadcast())
	}
	a.quiet()
	send(5060)
	installed := b.core.counters.Installed
	if q := send(5060).queue; installed == 0 || q == b.core.cfg.Queues[apps.BE] {
		t.Errorf("a new flow: %d installed, queue %d", installed, q)
	}

	s.dead[a] = false // it was stopped, and its connections have ended meanwhile
	a.connectAll()
	for range 40 {
		s.pass(time.Second)
		s.onlyMaster(t)
	}
	if a.core.Leading() || a.core.counters.RolesClaimed != 1 || b.core.counters.RolesClaimed != 1 || a.core.counters.RolesLost != 1 {
		t.Errorf("they take turns: %+v, %+v", a.core.counters, b.core.counters)
	}
}

// cookies are those of single flows on all switches.
func cookies(w *world) map[uint64]bool {
	out := map[uint64]bool{}
	for _, s := range w.switches {
		for _, e := range s.entries {
			if e.Cookie&cookieKindMask == cookieFlow {
				out[e.Cookie] = true
			}
		}
	}
	return out
}

// TestStaleMaster: one that was suspended and whose connections did not end is
// refused by the switches and learns of it.
func TestStaleMaster(t *testing.T) {
	s := newSeveral(t, 2)
	a, b := s.all[0], s.all[1]
	s.connectAll()
	s.pass(4 * time.Second)
	s.dead[a] = true
	s.pass(2 * takeoverAfter)
	if m := s.onlyMaster(t); m != b || !a.core.Leading() {
		t.Fatalf("%s", s)
	}
	s.dead[a] = false
	a.send(at(1, 1), simHostAt(at(1, 1), 1).broadcast())
	s.pass(takeoverAfter / renewals)
	if m := s.onlyMaster(t); m != b || a.core.Leading() || a.switches[1].control.stale == 0 {
		t.Errorf("%d refused, %s", a.switches[1].control.stale, s)
	}
}

// TestClaimTogether: two that find switches which nobody leads, each another one
// first, agree on the one with the higher priority.
func TestClaimTogether(t *testing.T) {
	s := newSeveral(t, 2)
	a, b := s.all[0], s.all[1]
	a.connect(1)
	b.connect(2)
	if !a.core.Leading() || !b.core.Leading() {
		t.Fatal("one does not claim what nobody has")
	}
	a.connect(2)
	b.connect(1)
	s.pass(2 * takeoverAfter)
	if m := s.onlyMaster(t); m != a {
		t.Errorf("the one with the lower priority leads: %s", s)
	}
}

// TestOwnSleep: a standby that slept does not take its own silence for the
// master's.
func TestOwnSleep(t *testing.T) {
	s := newSeveral(t, 2)
	a, b := s.all[0], s.all[1]
	s.connectAll()
	s.pass(4 * time.Second)
	s.dead[b] = true
	s.pass(10 * takeoverAfter)
	s.dead[b] = false
	b.do(b.core.RoleReply(b.now, 1, &openflow.RoleReply{RoleState: openflow.RoleState{Role: openflow.OFPCR_ROLE_SLAVE, GenerationID: b.core.election.newest}}))
	s.pass(3 * takeoverAfter)
	if m := s.onlyMaster(t); m != a || b.core.counters.RolesClaimed != 0 {
		t.Errorf("%s", s)
	}
}

// TestIsolatedStandby: a standby that reached no switch does not take that for the
// master's silence, whichever switch it reaches first.
func TestIsolatedStandby(t *testing.T) {
	s := newSeveral(t, 2)
	a, b := s.all[0], s.all[1]
	s.connectAll()
	s.pass(4 * time.Second)
	a.cut(1)
	s.pass(2 * time.Second)
	b.cut(1)
	b.cut(2)
	s.pass(3 * takeoverAfter)
	b.connect(1)
	b.connect(2)
	s.pass(4 * takeoverAfter)
	if m := s.masters(2); b.core.counters.RolesClaimed != 0 || len(m) != 1 || m[0] != a {
		t.Errorf("the master is deposed: %s", s)
	}
}

// TestElection: whatever connections and controllers come and go, and in which
// order, once all are there one is the master of all switches, and stays it.
func TestElection(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := newSeveral(t, 3)
		for range rapid.IntRange(1, 12).Draw(r, "steps") {
			w := s.all[rapid.IntRange(0, 2).Draw(r, "controller")]
			d := topology.DPID(rapid.IntRange(1, 2).Draw(r, "switch"))
			switch rapid.SampledFrom([]string{"connect", "cut", "stop", "restart the switch"}).Draw(r, "what") {
			case "connect":
				if _, there := w.switches[d].control.roles[w]; !there {
					w.connect(d)
				}
			case "cut":
				w.cut(d)
			case "stop":
				s.dead[w] = !s.dead[w]
			case "restart the switch":
				for _, one := range s.all {
					one.cut(d)
				}
				w.switches[d].control.known = false
			}
			s.pass(time.Duration(rapid.IntRange(0, 12).Draw(r, "seconds")) * time.Second)
		}
		clear(s.dead)
		for _, w := range s.all {
			for d, one := range w.switches {
				if _, there := one.control.roles[w]; !there {
					w.connect(d)
				}
			}
		}
		s.pass(4 * takeoverAfter)
		m := s.onlyMaster(r)
		for range 10 {
			s.pass(takeoverAfter)
			if now := s.onlyMaster(r); now != m {
				r.Fatalf("the master changes: %s", s)
			}
		}
	})
}
