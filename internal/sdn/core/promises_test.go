package core

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/promise"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/test/must"
)

// queued has the queues of all ports made as they are promised, and so much promised at most.
func (w *world) queued(promisableBPS uint64, except ...topology.Port) {
	w.core.cfg.QueueStates = func() map[topology.Port]qos.PortState {
		states := map[topology.Port]qos.PortState{}
		for d, s := range w.switches {
			for _, p := range s.ports {
				state := qos.PortState{State: "ok", RateBPS: 10 * promisableBPS, PromisableBPS: promisableBPS, Queues: map[openflow.Queue]qos.Rates{}}
				at := at(d, uint32(p.PortNo))
				for _, q := range w.core.Promises().At(at) {
					state.Queues[openflow.Queue(q.ID)] = qos.Rates{MinBPS: q.MinBPS}
				}
				if !slices.Contains(except, at) {
					states[at] = state
				}
			}
		}
		return states
	}
}

func (s simHost) address() netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, s.ip}) }

// says is the answer to who has the address of a host.
func (s simHost) says(mac openflow.MAC) []byte {
	b := append(append(gatewayMAC[:], mac[:]...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 2)
	return slices.Concat(b, mac[:], s.address().AsSlice(), gatewayMAC[:], make([]byte, 4))
}

// minimum is a promise for a port of one host to another.
func minimum(id string, a, b simHost, port uint16, mbit float64) promise.Request {
	return promise.Request{ID: id, Traffic: promise.Traffic{Node: a.address(), Peer: b.address(), Protocol: promise.TCP, Port: port}, MinBPS: [2]uint64{uint64(mbit * 1e6), promise.MinBPS}}
}

// promised reserves and confirms a minimum.
func (w *world) promised(r promise.Request) (PromiseState, error) {
	for _, step := range []func(time.Time, promise.Request) (PromiseState, []Command, error){w.core.Promises().Reserve, w.core.Promises().Confirm} {
		state, commands, err := step(w.now, r)
		w.do(commands)
		if err != nil {
			return state, err
		}
	}
	return w.core.Promises().All()[len(w.core.Promises().All())-1], nil
}

// arrives checks the queue in which a packet of a promise comes out, both ways.
func (w *world) arrives(what string, a, b simHost, port uint16, there, back bool) {
	w.t.Helper()
	for range 2 { // the first may be learned from
		w.carried(a, b, a.frame(b, flow.TCP, port, 40000, 20, 0))
		w.carried(b, a, b.frame(a, flow.TCP, 40000, port, 20, 0))
	}
	if queue, _, _ := w.carried(a, b, a.marked(b, port, 0)); queue >= promise.FirstQueue {
		w.t.Errorf("%s: UDP is in queue %d", what, queue)
	}
	queue, mark, asked := w.carried(a, b, a.frame(b, flow.TCP, port, 40000, 20, 0))
	if promised := queue >= promise.FirstQueue; promised != there || promised && (mark != 0 || asked > 0) {
		w.t.Errorf("%s: queue %d, mark %d, %d packets at the controller", what, queue, mark, asked)
	}
	queue, _, _ = w.carried(b, a, b.frame(a, flow.TCP, 40000, port, 20, 0))
	if promised := queue >= promise.FirstQueue; promised != back {
		w.t.Errorf("%s: back in queue %d", what, queue)
	}
}

// TestPromise: hosts are found by their addresses, and packets of a promise go through its queues on a
// path that has room, without the controller; it moves when a link is cut, and its entries return on a
// switch that has forgotten them, beside trusted ports as without.
func TestPromise(t *testing.T) {
	for name, change := range map[string]func(*Config){"plain": nil, "beside trusted ports": trusting(everywhere("p8")...)} {
		w := newWorld(t, change)
		var s []simHost
		for d := range topology.DPID(4) {
			w.add(d+1, 9)
			s = append(s, simHostAt(at(d+1, 9), byte(d+1)))
		}
		for d := range topology.DPID(4) {
			w.cable(at(d+1, 1), at((d+1)%4+1, 2))
		}
		w.queued(15e6)
		w.connectAll()
		w.pass(4 * time.Second)
		w.quiet()
		if _, err := w.promised(minimum("a", s[0], s[2], 80, 10)); !errors.Is(err, promise.ErrUnknown) || !strings.Contains(err.Error(), "no port is known that leads to 198.18.0.1") {
			t.Fatalf("%s: of hosts that are not known: %v", name, err)
		}
		for _, one := range s[1:] {
			if got := w.delivered(one.at); len(got) == 0 || !slices.Equal(got[0].data, question(netip.IPv4Unspecified(), s[0].address())) {
				t.Fatalf("%s: %v was not asked: %v", name, one.at, got)
			}
			w.send(one.at, one.says(one.mac))
		}
		w.send(s[0].at, s[0].says(s[0].mac))
		w.send(s[1].at, s[0].says(s[1].mac)) // another pretends to have its address
		state, err := w.promised(minimum("a", s[0], s[2], 80, 10))
		must.Succeed(t, err)
		if state.Waits != "" || len(state.Ways[0]) != 3 || state.Ways[0][0].In != s[0].at.Number {
			t.Errorf("%s: %+v", name, state)
		}
		w.arrives(name, s[0], s[2], 80, true, true)
		if _, err := w.promised(minimum("b", s[0], s[2], 81, 10)); !errors.Is(err, promise.ErrNoRoom) { // of the host's own port
			t.Errorf("%s: a second one: %v", name, err)
		}

		w.unplug(at(state.Ways[0][0].Switch, state.Ways[0][0].Out))
		w.pass(6 * time.Second)
		moved := w.core.Promises().All()[0]
		if news := w.core.Promises().News(); moved.Broken != nil || moved.Ways[0][0].Out == state.Ways[0][0].Out || len(news) == 0 {
			t.Errorf("%s: a link is cut: %+v, news %v", name, moved, news)
		}
		w.arrives(name+", a link is cut", s[0], s[2], 80, true, true)

		for d, s := range w.switches {
			s.entries = nil
			w.core.Disconnected(w.now, d)
			w.connect(d)
		}
		w.pass(6 * time.Second)
		w.arrives(name+", tables are forgotten", s[0], s[2], 80, true, true)

		commands, err := w.core.Promises().Release(w.now, "a")
		must.Succeed(t, err)
		w.do(commands)
		if _, err := w.core.Promises().Release(w.now, "a"); !errors.Is(err, promise.ErrUnknown) {
			t.Errorf("%s: released twice: %v", name, err)
		}
		w.arrives(name+", released", s[0], s[2], 80, false, false)
	}
}

// TestPromiseEnds: an unconfirmed promise ends, and what an earlier controller promised stays until the
// ledger had time to tell it.
func TestPromiseEnds(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.queued(15e6)
	for _, one := range s {
		w.core.promises.addresses[one.address()] = &soughtHost{mac: one.mac}
	}
	entries := func() (n int) {
		for _, e := range w.switches[1].entries {
			if e.Cookie&cookieKindMask == cookiePromise {
				n++
			}
		}
		return n
	}
	_, commands, err := w.core.Promises().Reserve(w.now, minimum("a", s[0], s[1], 80, 1))
	must.Succeed(t, err)
	if w.do(commands); entries() != 2 {
		t.Fatalf("%d entries", entries())
	}
	if w.pass(promise.Lease + 2*time.Second); entries() != 0 {
		t.Errorf("%d entries after the lease", entries())
	}
	_, err = w.promised(minimum("a", s[0], s[1], 80, 1))
	must.Succeed(t, err)
	old := w.switches[1].entries
	for _, told := range []bool{true, false} {
		w.core = New(*w.core.cfg)
		w.switches[1].entries = old
		w.queued(15e6)
		w.connectAll()
		_, _, err = w.core.Promises().Confirm(w.now, minimum("early", s[0], s[1], 81, 1))
		must.Succeed(t, err)
		if early := w.core.Promises().All()[0]; early.Broken != nil || !strings.Contains(early.Waits, "no port is known that leads to") {
			t.Errorf("told before hosts are known: %v, waits: %s", early.Broken, early.Waits)
		}
		_, err = w.core.Promises().Release(w.now, "early")
		must.Succeed(t, err)
		if w.pass(10 * time.Second); entries() != 2 {
			t.Errorf("%d entries after a restart", entries())
		}
		want := 0
		if told {
			for _, one := range s {
				w.send(one.at, one.broadcast())
				w.core.promises.addresses[one.address()] = &soughtHost{mac: one.mac}
			}
			_, commands, err = w.core.Promises().Confirm(w.now, minimum("a", s[0], s[1], 80, 1))
			must.Succeed(t, err)
			w.do(commands)
			want = 2
		}
		if w.pass(tellAgain); entries() != want {
			t.Errorf("%d entries, told: %v", entries(), told)
		}
	}
}

// TestPromiseRefused: what cannot be in force says why.
func TestPromiseRefused(t *testing.T) {
	w, s := oneSwitch(t, nil)
	for _, one := range s {
		w.core.promises.addresses[one.address()] = &soughtHost{mac: one.mac}
	}
	refused := func(says string, kind error, r promise.Request) {
		t.Helper()
		if _, err := w.promised(r); !errors.Is(err, kind) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	r := minimum("a", s[0], s[1], 80, 1)
	refused("port 2 (p2) has no queues: weir sdn run makes some with --ovsdb", promise.ErrNoRoom, r)
	w.queued(15e6, s[0].at)
	refused("port 1 (p1) has no queues", promise.ErrNoRoom, r)
	w.queued(0)
	refused("leave nothing to promise: lower --ef-max", promise.ErrNoRoom, r)
	w.queued(15e6)
	tunnel := r
	tunnel.Protocol, tunnel.Port = promise.UDP, 4789
	refused("is VXLAN", promise.ErrAlike, tunnel)
	w.core.promises.addresses[s[1].address()].mac = s[0].mac
	refused("are both behind", promise.ErrAlike, r)
	w.core.promises.addresses[s[1].address()].mac = s[1].mac
	if way, free, _, err := w.core.Promises().PathBetween(w.now, s[0].address(), s[1].address()); err != nil || len(way) != 1 || free != 15e6 {
		t.Errorf("path %v, free %d, %v", way, free, err)
	}
	if promised, free, err := w.core.Promises().FreeMinimum(s[1].at); err != nil || promised != 0 || free != 15e6 {
		t.Errorf("promised %d, free %d, %v", promised, free, err)
	}

	// The database refuses the queue at one of two ports, and later does not.
	both := w.core.cfg.QueueStates
	w.core.cfg.QueueStates = func() map[topology.Port]qos.PortState {
		states := both()
		states[s[0].at] = qos.PortState{State: "waiting", Reason: "change the database: refused", PromisableBPS: 15e6}
		return states
	}
	half, err := w.promised(minimum("half", s[0], s[1], 90, 1))
	must.Succeed(t, err)
	if want := "queue 8 of 0000000000000001 port 1 is not made yet: change the database: refused"; half.Broken != nil || half.Waits != want {
		t.Errorf("half made: %v, %q", half.Broken, half.Waits)
	}
	w.core.cfg.QueueStates = both
	if w.pass(2 * time.Second); w.core.Promises().All()[0].Waits != "" {
		t.Errorf("made: %q", w.core.Promises().All()[0].Waits)
	}
	commands, err := w.core.Promises().Release(w.now, "half")
	must.Succeed(t, err)
	w.do(commands)

	// The switch refuses the entry, and later does not.
	_, err = w.promised(r)
	must.Succeed(t, err)
	cookie := promiseCookie("a", 1)
	m := (promiseEntry{of: r.Traffic}).message(cookie)
	raw, err := openflow.Append(nil, m)
	must.Succeed(t, err)
	w.do(w.core.Error(w.now, 1, &openflow.ErrorMessage{ErrorType: openflow.OFPET_FLOW_MOD_FAILED, Code: uint16(openflow.OFPFMFC_TABLE_FULL), Data: raw[:64]}))
	if p := w.core.Promises().All()[0]; p.Broken == nil || !strings.Contains(p.Broken.Error(), "refuses the entry") {
		t.Errorf("refused: %+v", p)
	}
	if w.pass(61 * time.Second); w.core.Promises().All()[0].Broken != nil {
		t.Errorf("a minute later: %v", w.core.Promises().All()[0].Broken)
	}
	w.core.election = election{takeoverAfter: time.Second, leading: true}
	if w.core.IsStandby() {
		t.Error("the master is a standby")
	}
	w.core.Disconnected(w.now, 1)
	for name, leads := range map[string]bool{"a standby": false, "a master that no switch obeys": true} {
		w.core.election.leading = leads
		_, _, err := w.core.Promises().Confirm(w.now, r)
		_, ended := w.core.Promises().Release(w.now, "a")
		if !errors.Is(err, errStandby) || !errors.Is(ended, errStandby) || !w.core.IsStandby() {
			t.Errorf("%s: %v, %v", name, err, ended)
		}
	}
}

// TestSlowLink: the core names a link that sends less than its rate, after some statistics, and no link
// whose queues drop a burst or that sends its rate.
func TestSlowLink(t *testing.T) {
	for name, c := range map[string]struct {
		drops []uint64 // by statistics
		rate  float64  // of 100 Mbit/s
		max   uint64
		says  bool
	}{
		"lies":         {[]uint64{0, 5, 9, 12, 20}, 10e6, 100e6, true},
		"a burst":      {[]uint64{0, 5, 5, 5, 5}, 10e6, 100e6, false},
		"twice":        {[]uint64{0, 0, 0, 5, 9}, 10e6, 100e6, false},
		"is full":      {[]uint64{0, 5, 9, 12, 20}, 95e6, 100e6, false},
		"of a maximum": {[]uint64{0, 5, 9, 12, 20}, 10e6, 10e6, false},
		"it is over":   {[]uint64{0, 5, 9, 12, 12}, 10e6, 100e6, false},
	} {
		w, _ := oneSwitch(t, nil)
		w.core.cfg.QueueStates = func() map[topology.Port]qos.PortState {
			return map[topology.Port]qos.PortState{at(1, 1): {State: "ok", RateBPS: 100e6, Queues: map[openflow.Queue]qos.Rates{2: {MaxBPS: c.max}}}}
		}
		bytes := uint64(0)
		for _, dropped := range c.drops {
			w.pass(5 * time.Second)
			bytes += uint64(c.rate / 8 * 5)
			w.core.QueueStats(w.now, 1, []openflow.QueueStats{{PortNo: 1, QueueID: 2, TxErrors: dropped}})
			w.core.PortStats(w.now, 1, []openflow.PortStats{{PortNo: 1, TxBytes: bytes}})
		}
		if got := w.core.Snapshot(false).Switches[0].Ports[0].Slow; (got != "") != c.says || c.says && !strings.Contains(got, "sends 10mbit of its 100mbit") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestAsksAreBounded: however many hosts are missing, few are asked for at a time, and all in the end.
func TestAsksAreBounded(t *testing.T) {
	w, s := oneSwitch(t, nil)
	w.queued(15e6)
	missing := simHostAt(at(1, 3), 200)
	asked := func() (n int) {
		for _, one := range w.delivered(s[0].at) {
			if f, _ := ReadFrame(one.data); f.EtherType == etherARP {
				n++
			}
		}
		return n
	}
	w.quiet()
	for i := range uint16(120) {
		to := missing
		to.ip = byte(100 + i)
		_, commands, _ := w.core.Promises().Confirm(w.now, minimum(fmt.Sprint(i), s[1], to, 1000+i, 1))
		w.do(commands)
	}
	if n := asked(); n > maxAsks {
		t.Errorf("%d questions at once", n)
	}
	w.packets = 0
	w.pass(time.Second)
	first := asked()
	w.packets = 0
	w.pass(5 * time.Second)
	if n := asked(); first > 2*maxAsks || n < 2*maxAsks || n > 6*maxAsks {
		t.Errorf("%d questions in a second, %d in five", first, n)
	}
	for ip, a := range w.core.promises.addresses {
		if a.asked.IsZero() {
			t.Errorf("%v was never asked for", ip)
		}
	}
}
