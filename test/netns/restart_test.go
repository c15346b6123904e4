//go:build netns

package netns

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// restarts are the ways in which an agent goes.
var restarts = []struct {
	name string
	end  func(*harness.Agent)
}{
	{"SIGTERM", (*harness.Agent).Stop},
	{"SIGKILL", (*harness.Agent).Kill},
}

// TestSetAndReset changes a policy with the commands that users have, and
// measures that it is in force.
func TestSetAndReset(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	competitors := []competitor{{labels("weight", "100"), harness.TCP}, {labels("weight", "100", "min", "10mbit"), harness.TCP}}
	agent, _ := compete(t, b, harness.AgentOptions{}, competitors...)
	if out := b.MustWeir("set", "one", "--weight", "300", "--max", "60mbit"); !strings.Contains(out, "300") {
		t.Errorf("weir set prints %q", out)
	}
	changed := []harness.Claim{
		{Labels: labels("weight", "300", "max", "60mbit"), DemandBPS: harness.Unlimited},
		{Labels: labels("min", "10mbit"), DemandBPS: harness.Unlimited},
	}
	b.CheckShares(100*mbit, changed)

	t.Run("refusal changes nothing", func(t *testing.T) {
		before, kernel := agent.Containers(), tcClasses(b)
		for _, refused := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"set", "one", "--min", "50mbit", "--max", "none"}, 0, ""},
			{[]string{"set", "two", "--min", "46mbit", "--weight", "900"}, 1, "45mbit is free"},
			{[]string{"set", "two", "--min", "70mbit", "--max", "60mbit"}, 1, "above the maximum"},
			{[]string{"set", "two", "--weight", "10001"}, 2, "weight"},
			{[]string{"set", "two", "--min", "10MB/s"}, 2, "bytes"},
			{[]string{"set", "nobody", "--weight", "7"}, 1, "no such container"},
			{[]string{"set", "two"}, 2, "nothing to set"},
			{[]string{"set"}, 2, "NAME is missing"},
			{[]string{"set", "two", "--wieght", "7"}, 2, "unknown flag"},
			{[]string{"reset", "nobody"}, 1, "no such container"},
		} {
			result := b.Weir(refused.args...)
			if result.Code != refused.code || !strings.Contains(result.Stderr, refused.want) ||
				(refused.code == 0) != (result.Stderr == "") || (refused.code != 0) && result.Stdout != "" {
				t.Errorf("weir %s: %+v, want code %d and %q", strings.Join(refused.args, " "), result, refused.code, refused.want)
			}
			if refused.code == 0 {
				// The preparation: two's minimum has 45 Mbit/s left.
				before, kernel = agent.Containers(), tcClasses(b)
				continue
			}
			after := agent.Containers()
			for name := range before {
				if after[name].Policy != before[name].Policy || after[name].EntitledBPS != before[name].EntitledBPS ||
					after[name].State != before[name].State {
					t.Errorf("weir %s: %s was %+v, is %+v", strings.Join(refused.args, " "), name, before[name], after[name])
				}
			}
			if now := tcClasses(b); !slices.Equal(now, kernel) {
				t.Errorf("weir %s: classes were %v, are %v", strings.Join(refused.args, " "), kernel, now)
			}
		}
	})
	b.MustWeir("reset", "one")
	b.CheckShares(100*mbit, claims(100*mbit, competitors...))
	if got := agent.Container("one").Policy; got != policy.Default() {
		t.Errorf("after reset: %+v", got)
	}
}

// tcClasses are the handles of the uplink's classes and queues, which say who
// has which.
func tcClasses(b *harness.Bed) []string {
	var handles []string
	for line := range strings.Lines(tcConfig(b)) {
		// Before Linux 6.6 programs are attached to a qdisc of their own.
		if m := objectLine.FindStringSubmatch(line); m != nil && m[1] != "qdisc clsact ffff:" {
			handles = append(handles, m[1])
		}
	}
	slices.Sort(handles)
	return handles
}

// TestSourceLeftOut: what an agent did to containers that the next one is not told
// of is undone, so that their packets do not carry the numbers of others.
func TestSourceLeftOut(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("one", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	if taps := b.Programs("weir_tap"); len(taps) != 1 {
		t.Fatalf("taps: %v", taps)
	}
	agent.Kill()
	agent = b.StartAgent(harness.AgentOptions{Settings: map[string]any{"containers": []string{}}})
	if taps := b.Programs("weir_tap"); len(taps) != 0 {
		t.Errorf("taps are left: %v", taps)
	}
	if known := agent.Containers(); len(known) != 1 { // the host
		t.Errorf("known: %v", known)
	}
}

// TestRestartIsNotNoticed: while the agent ends, is away, and comes back, not
// a packet of a container within its share is lost, though others flood; no
// class or queue is made anew; and what was set stays set.
func TestRestartIsNotNoticed(t *testing.T) {
	for _, restart := range restarts {
		t.Run(restart.name, func(t *testing.T) {
			b := newBed(t)
			careful, flooding := b.Add("careful", nil), b.Add("flooding", labels("min", "10mbit"))
			agent := b.StartAgent(harness.AgentOptions{})
			b.MustWeir("set", "careful", "--weight", "200", "--min", "20mbit")
			b.Send(flooding, harness.Flood)
			sequence := startSequence(t, b, careful)
			time.Sleep(300 * time.Millisecond)
			handles, before := tcClasses(b), queueing(t, b)
			programs := bpfPrograms(t, b)

			restart.end(agent)
			time.Sleep(200 * time.Millisecond)
			between := queueing(t, b)
			agent = b.StartAgent(harness.AgentOptions{})
			time.Sleep(500 * time.Millisecond)

			after := queueing(t, b)
			if now := tcClasses(b); !slices.Equal(now, handles) {
				t.Errorf("classes and queues were %v, are %v", handles, now)
			}
			for object, was := range before {
				if now := after[object]; now.bytes < between[object].bytes || between[object].bytes < was.bytes {
					t.Errorf("%s had sent %d bytes, then %d, then %d: it was made anew",
						object, was.bytes, between[object].bytes, now.bytes)
				}
			}
			if now := bpfPrograms(t, b); !slices.Equal(slices.Sorted(slices.Values(now)), slices.Sorted(slices.Values(programs))) {
				t.Errorf("programs were %v, are %v", programs, now)
			}
			carefulClass, floodingClass := "class htb 7e11:10", "class htb 7e11:11"
			if moved := after[floodingClass].bytes - before[floodingClass].bytes; moved < 1e6 {
				t.Errorf("the flood sent %d bytes meanwhile: is %s its class?", moved, floodingClass)
			}
			if after[carefulClass].dropped != 0 {
				t.Errorf("%d packets of the careful container were dropped", after[carefulClass].dropped)
			}
			sequence.stop(t)

			got := agent.Container("careful")
			if got.Policy.Weight != 200 || got.Policy.MinBPS != 20*mbit || got.State != v1.StateOK {
				t.Errorf("what was set before the restart: %+v", got)
			}
			if got := agent.Container("flooding"); got.Policy.MinBPS != 10*mbit || got.State != v1.StateOK {
				t.Errorf("labels after the restart: %+v", got)
			}
			b.MustWeir("reset", "careful")
			if got := agent.Container("careful").Policy; got != policy.Default() {
				t.Errorf("reset after the restart: %+v", got)
			}
		})
	}
}

// sequence sends numbered datagrams from a container, a thousand a second,
// and counts what arrives.
type sequence struct {
	in      *net.UDPConn
	out     io.WriteCloser
	total   uint64 // sent, when it has ended
	quit    chan struct{}
	sent    chan uint64
	counts  chan map[uint64]int
	late    chan int
	arrived atomic.Uint64
}

func startSequence(t *testing.T, b *harness.Bed, c *harness.Container) *sequence {
	t.Helper()
	const port = 5100 // not the meter's
	s := &sequence{
		quit: make(chan struct{}), sent: make(chan uint64, 1),
		counts: make(chan map[uint64]int, 1), late: make(chan int, 1),
	}
	err := testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		s.in, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	})
	must.Succeed(t, err)
	err = testbed.InNetNS(c.NetNSPath(), func() (err error) {
		s.out, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: b.Host.PeerAddr.AsSlice(), Port: port})
		return err
	})
	must.Succeed(t, err)
	s.start(t)
	return s
}

// startReceived starts a sequence that the neighbour sends to a container, which asks for it.
func startReceived(t *testing.T, b *harness.Bed, c *harness.Container) *sequence {
	t.Helper()
	s := &sequence{
		quit: make(chan struct{}), sent: make(chan uint64, 1),
		counts: make(chan map[uint64]int, 1), late: make(chan int, 1),
	}
	answering := &answering{}
	must.Succeed(t, testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		answering.UDPConn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: b.Host.PeerAddr.AsSlice()})
		return err
	}))
	s.out = answering
	must.Succeed(t, testbed.InNetNS(c.NetNSPath(), func() (err error) {
		s.in, err = net.DialUDP("udp4", nil, answering.LocalAddr().(*net.UDPAddr))
		return err
	}))
	_, err := s.in.Write([]byte("go"))
	must.Succeed(t, err)
	_, answering.to, err = answering.ReadFromUDPAddrPort(make([]byte, 10))
	must.Succeed(t, err)
	s.start(t)
	return s
}

// answering writes to the one that has asked.
type answering struct {
	*net.UDPConn
	to netip.AddrPort
}

func (a *answering) Write(packet []byte) (int, error) { return a.WriteToUDPAddrPort(packet, a.to) }

func (s *sequence) start(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { s.in.Close(); s.out.Close() })
	must.Succeed(t, forceReadBuffer(s.in))
	go s.receive()
	go s.send()
}

// forceReadBuffer gives a socket room for what arrives while a busy machine
// keeps the test from reading, beyond the limit for everyone.
func forceReadBuffer(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	const bytes = 32 << 20
	failure := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bytes)
	})
	return errors.Join(err, failure)
}

// sequenceBytes is the payload of a datagram of a sequence, 8.3 Mbit/s in all.
const sequenceBytes = 1000

func (s *sequence) send() {
	packet := make([]byte, sequenceBytes)
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for number := uint64(0); ; number++ {
		select {
		case <-s.quit:
			s.sent <- number
			return
		case <-ticker.C:
		}
		for i := range 8 {
			packet[i] = byte(number >> (8 * i))
		}
		if _, err := s.out.Write(packet); err != nil {
			number-- // not sent
		}
	}
}

// lateAfter: a packet is late if one has overtaken it that was sent so many
// milliseconds after it. Each processor has its own queue of what comes in
// through a veth, so neighbours may change places with any scheduler.
const lateAfter = 10

func (s *sequence) receive() {
	counts, late, highest := map[uint64]int{}, 0, uint64(0)
	packet := make([]byte, 2000)
	for {
		n, err := s.in.Read(packet)
		if err != nil {
			s.counts <- counts
			s.late <- late
			return
		}
		number := uint64(0)
		for i := range min(n, 8) {
			number |= uint64(packet[i]) << (8 * i)
		}
		counts[number]++
		s.arrived.Add(1)
		if number+lateAfter < highest {
			late++
		}
		highest = max(highest, number)
	}
}

// stop ends the sequence and fails the test if it was not received as it was
// sent.
func (s *sequence) stop(t *testing.T) {
	t.Helper()
	if late := s.stopInAnyOrder(t); late > 0 {
		t.Errorf("%d packets came late", late)
	}
}

// stopInAnyOrder ends the sequence, fails the test if it was not received
// whole, and says how many packets came late, as some do on a busy machine.
func (s *sequence) stopInAnyOrder(t *testing.T) (late int) {
	t.Helper()
	close(s.quit)
	sent := <-s.sent
	s.total = sent
	for deadline := time.Now().Add(10 * time.Second); s.arrived.Load() < sent && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond) // what arrives twice
	s.in.Close()
	counts, late := <-s.counts, <-s.late
	var lost []uint64
	for number := range sent {
		if counts[number] == 0 {
			lost = append(lost, number)
		}
	}
	if len(lost) > 0 || uint64(len(counts)) != sent {
		t.Errorf("of %d packets %d were lost (%v), %d arrived", sent, len(lost), lost[:min(len(lost), 10)], len(counts))
	}
	for number, times := range counts {
		if times != 1 {
			t.Errorf("packet %d arrived %d times", number, times)
		}
	}
	if sent < 500 {
		t.Errorf("only %d packets were sent", sent)
	}
	return late
}

// TestRestartWithAnotherRate: the new rate is in force, in place: classes and
// queues are the old ones, changed.
func TestRestartWithAnotherRate(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	// Not TCP, which would remember for seconds that it was starved.
	competitors := []competitor{
		{labels("weight", "100"), harness.Flood},
		{labels("weight", "300", "min", "60mbit"), harness.Flood},
	}
	agent, containers := compete(t, b, harness.AgentOptions{}, competitors...)
	b.CheckShares(100*mbit, claims(100*mbit, competitors...))
	handles := tcClasses(b)
	sent := queueing(t, b)["class htb 7e11:10"].bytes
	limit := gsoMaxBytes(t, containers[0])
	agent.Stop()

	agent = b.StartAgent(harness.AgentOptions{Rate: "40mbit"})
	if now := tcClasses(b); !slices.Equal(now, handles) {
		t.Errorf("classes and queues were %v, are %v", handles, now)
	}
	if now := queueing(t, b)["class htb 7e11:10"].bytes; now < sent {
		t.Errorf("class 7e11:10 had sent %d bytes, now %d: it was made anew", sent, now)
	}
	if now := gsoMaxBytes(t, containers[0]); now >= limit {
		t.Errorf("packets were limited to %d bytes, now to %d: want less on a slower link", limit, now)
	}
	// The minimum does not fit any more, and that is shown.
	if got := agent.Container("two"); got.State == v1.StateOK || !strings.Contains(got.Reason, "60mbit") {
		t.Errorf("a minimum of 60 Mbit/s on a link of 40: %+v", got)
	}
	b.WarmUp()
	b.Check(harness.Duration, func(m harness.Measurement) error {
		if sum := m.SumBPS(); sum > 40*mbit*(1+harness.Overshoot) || sum < 40*mbit*(harness.LinkUse-m.Slack) {
			return fmt.Errorf("sent %.2f Mbit/s through a link of 40; CPU: %s", sum/mbit, m.CPU)
		}
		return nil
	})
	agent.Stop()

	agent = b.StartAgent(harness.AgentOptions{Rate: "200mbit"})
	if got := agent.Container("two"); got.State != v1.StateOK {
		t.Errorf("a minimum of 60 Mbit/s on a link of 200: %+v", got)
	}
	b.CheckShares(200*mbit, claims(200*mbit, competitors...))
}

// TestCorruptState: a state file that cannot be read stops an agent with its
// line, before it touches the kernel.
func TestCorruptState(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Add("one", nil)
	agent := b.StartAgent(harness.AgentOptions{})
	b.MustWeir("set", "one", "--weight", "700")
	agent.Stop()
	path := b.Files.StatePath()
	good, err := os.ReadFile(path)
	must.Succeed(t, err)
	before, programs := tcConfig(b), bpfPrograms(t, b)
	lines := strings.Split(string(good), "\n")
	for _, corrupt := range []struct {
		name, text, want string
	}{
		{"cut off", strings.Join(lines[:len(lines)/2], "\n"), path + ":"},
		{"a letter", strings.Replace(string(good), `"number": 16`, `"number": sixteen`, 1), path + ":" + lineOf(lines, `"number": 16`) + ":"},
		{"another type", strings.Replace(string(good), `"number": 16`, `"number": "16"`, 1), path + ":" + lineOf(lines, `"number": 16`) + ":"},
		{"a later version", strings.Replace(string(good), `"version": 2`, `"version": 99`, 1), path + ":2: \"version\" is 99"},
		{"empty", "", path + ":1:"},
		{"rubbish", "\x00\x01\x02", path + ":1:"},
		{"no object", "[]", path + ":1:"},
		{"trailing rubbish", string(good) + "}{", path + ":"},
	} {
		t.Run(corrupt.name, func(t *testing.T) {
			must.Succeed(t, os.WriteFile(path, []byte(corrupt.text), 0o600))
			result := b.RefusedAgent(harness.AgentOptions{})
			if result.Code != 1 || !strings.Contains(result.Stderr, corrupt.want) {
				t.Errorf("got %+v, want code 1 and %q", result, corrupt.want)
			}
			if down := b.Weir("down", "--state-dir", b.Files.StateDir()); down.Code != 1 || !strings.Contains(down.Stderr, path) {
				t.Errorf("weir down: %+v", down)
			}
			if now := tcConfig(b); now != before {
				t.Errorf("the uplink was\n%s\nis\n%s", before, now)
			}
			if now := bpfPrograms(t, b); !maps.Equal(set(now), set(programs)) {
				t.Errorf("programs were %v, are %v", programs, now)
			}
		})
	}
	// Mended, and with what a later version may have added, which is left out.
	mended := strings.Replace(string(good), `"version": 2,`, `"version": 2, "flavour": 2,`, 1)
	must.Succeed(t, os.WriteFile(path, []byte(mended), 0o600))
	if got := b.StartAgent(harness.AgentOptions{}).Container("one").Policy.Weight; got != 700 {
		t.Errorf("with the file mended, weight %d, want 700", got)
	}
}

func lineOf(lines []string, text string) string {
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, text) })
	return strconv.Itoa(i + 1)
}

// TestContainersChangeWhileNoAgentRuns: a container that starts while no
// agent runs is taken in by the next one, and one that ended is forgotten.
func TestContainersChangeWhileNoAgentRuns(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	one, two := b.Add("one", nil), b.Add("two", labels("weight", "300"))
	agent := b.StartAgent(harness.AgentOptions{})
	b.MustWeir("set", "two", "--weight", "400")
	agent.Kill()
	b.Run("ip", "netns", "del", netNSName(two))
	three := b.Add("three", labels("weight", "300"))
	agent = b.StartAgent(harness.AgentOptions{})
	if got := agent.Containers(); got["two"].ID != "" || got["three"].State != v1.StateOK {
		t.Errorf("got %+v", got)
	}
	b.Send(one, harness.TCP)
	b.Send(three, harness.Load{Protocol: traffic.TCP, Connections: 4})
	b.WarmUp()
	b.Check(harness.Duration, func(m harness.Measurement) error {
		m.Move(1, three.Slot)
		return harness.CheckShares(100*mbit, m, []uint64{25 * mbit, 75 * mbit})
	})
}

// TestCountersOnlyGrow: what is counted of a container is never less than it was, when its class
// is made again, when it had traffic classes and when another agent takes over, nor more than it
// sent; and a client that looks meanwhile sees numbers of one moment.
func TestCountersOnlyGrow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	c := b.Add("one", labels("max", "50mbit")) // a maximum, so all goes through its classes
	agent := b.StartAgent(harness.AgentOptions{})
	sender := b.Send(c, harness.Load{Protocol: traffic.UDP, RateBPS: 20 * mbit})
	var last v1.Container
	grows := func(when string) {
		t.Helper()
		enough := last.SentBytes + 300_000
		b.Await("more to be sent "+when, 8*time.Second, func() (bool, string) {
			got := agent.Container("one")
			if got.SentBytes < last.SentBytes || got.SentPackets < last.SentPackets || got.DroppedPackets < last.DroppedPackets {
				t.Fatalf("%s: %d bytes, %d packets, %d drops became %d, %d, %d", when, last.SentBytes, last.SentPackets,
					last.DroppedPackets, got.SentBytes, got.SentPackets, got.DroppedPackets)
			}
			last = got
			return got.SentBytes > enough && got.State == v1.StateOK, fmt.Sprintf("%+v", got)
		})
		if last.SentPackets < last.SentBytes/1514 || last.SentPackets > last.SentBytes/60 {
			t.Errorf("%s: %d packets of %d bytes", when, last.SentPackets, last.SentBytes)
		}
		if age := time.Since(last.MeasuredAt); age < 0 || age > 2*time.Second || !last.MeasuredAt.Equal(last.Shares[0].MeasuredAt) {
			t.Errorf("%s: measured %s ago, at %s", when, age, last.Shares[0].MeasuredAt)
		}
	}
	grows("at first")
	for _, class := range []string{"auto", "none"} {
		b.MustWeir("set", "one", "--class", class)
		grows("with class " + class)
	}
	agent.Stop()
	agent = b.StartAgent(harness.AgentOptions{})
	grows("to an agent after its traffic classes ended")
	if sent := sender.SentBytes(); last.SentBytes > sent*11/10 {
		t.Errorf("%d bytes counted, %d sent", last.SentBytes, sent)
	}
	b.Run("tc", "qdisc", "del", "dev", b.Host.UplinkName, "root")
	grows("after the classes were made again")
	agent.Kill()
	agent = b.StartAgent(harness.AgentOptions{})
	grows("to another agent")
	if status := agent.Status(); status.AgeMS > 2000 {
		t.Errorf("status %+v", status)
	}
}
