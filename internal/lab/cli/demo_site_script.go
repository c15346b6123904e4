package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// siteSpan is what arrived in a span of time.
type siteSpan struct {
	took      time.Duration
	call      []time.Duration // for how long packets were on their way, in both directions
	cameraBPS float64         // at the viewers' sockets
	nodeBPS   float64         // all that came in at node 2
}

// siteCounts are the bytes that the viewers and node 2 had got by a moment.
type siteCounts struct{ camera, node uint64 }

// span returns what has arrived since a moment, which is that of the last call.
func (d *siteDemo) span(since time.Time) (siteSpan, error) {
	s := siteSpan{}
	for i := range d.nodes {
		arrivals, _ := d.nodes[i].receiver.Take()
		for _, a := range arrivals[0] {
			s.call = append(s.call, a.Delay())
		}
	}
	slices.Sort(s.call)
	node, err := receivedBytes(d.nodes[1].space)
	now, before := siteCounts{d.viewers.bytes.Load(), node}, d.counted
	s.took, d.counted = time.Since(since), now
	s.cameraBPS = between(demoSample{bytes: before.camera}, demoSample{at: time.Time{}.Add(s.took), bytes: now.camera}).bps
	s.nodeBPS = 8 * float64(now.node-before.node) / s.took.Seconds()
	return s, err
}

// receivedBytes returns how much has come in at the interface eth0 of a network namespace.
func receivedBytes(space *testbed.Process) (bytes uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", space.Pid()))
	if err != nil {
		return 0, fmt.Errorf("read the counters of a node: %w", err)
	}
	_, counters, _ := strings.Cut(string(text), "eth0:")
	if _, err := fmt.Sscan(counters, &bytes); err != nil {
		return 0, fmt.Errorf("read the counters of a node: %w", err)
	}
	return bytes, nil
}

// delays says how long the call's packets were on their way.
func (s *siteSpan) delays() string {
	if len(s.call) == 0 {
		return "call: nothing"
	}
	return fmt.Sprintf("call after %.1f ms at the 99th percentile, %.1f ms at most", inMS(s.call[(len(s.call)-1)*99/100]), inMS(s.call[len(s.call)-1]))
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// String says what arrived.
func (s *siteSpan) String() string {
	text := s.delays()
	if s.cameraBPS > 0 {
		text += "; camera " + demoRate(s.cameraBPS)
	}
	return text + "; in all at node 2 " + demoRate(s.nodeBPS)
}

func (d *siteDemo) show(ctx context.Context) error {
	for _, scene := range []func(context.Context) error{d.startCall, d.startCamera, d.fillUplinks, d.fillLink, d.why} {
		if err := scene(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	if d.once {
		return nil
	}
	d.scene("That was all. The traffic stays until you press Ctrl-C.")
	for ctx.Err() == nil {
		if _, err := d.look(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}

// scene announces what happens.
func (d *siteDemo) scene(format string, args ...any) {
	d.say("\n%s", strings.Join(cmdline.Wrap(fmt.Sprintf(format, args...), top.DefaultWidth), "\n"))
}

// look prints each second what arrives, for a time, and returns it.
func (d *siteDemo) look(ctx context.Context, during time.Duration) (spans []siteSpan, err error) {
	began := time.Now()
	if _, err := d.span(began); err != nil {
		return nil, err
	}
	for end := began.Add(during); time.Now().Before(end) && ctx.Err() == nil; {
		wait(ctx, time.Second)
		s, err := d.span(began)
		if err != nil {
			return nil, err
		}
		began = time.Now()
		spans = append(spans, s)
		_, _ = io.WriteString(d.out, "arrives: "+s.String()+"\n") // a closed pipe ends the demo by SIGPIPE
	}
	return spans, nil
}

// lookBeside is look for a scene with backups.
func (d *siteDemo) lookBeside(ctx context.Context) error {
	spans, err := d.look(ctx, siteScene)
	d.beside = append(d.beside, spans...)
	return err
}

// sayAll says what the call, the camera and node 2 got in the seconds with backups.
func (d *siteDemo) sayAll() {
	all, least := siteSpan{}, math.Inf(1)
	for _, s := range d.beside {
		before, now := all.took.Seconds(), s.took.Seconds()
		all.cameraBPS = (all.cameraBPS*before + s.cameraBPS*now) / (before + now)
		all.nodeBPS = (all.nodeBPS*before + s.nodeBPS*now) / (before + now)
		all.took += s.took
		all.call = append(all.call, s.call...)
		least = min(least, s.cameraBPS)
	}
	slices.Sort(all.call)
	d.say("%s", strings.Join(cmdline.Wrap(fmt.Sprintf("In all %.0f seconds with backups: %s, of %.0f; camera %s, in the worst second %s, of %s promised; in all at node 2 %s.",
		all.took.Seconds(), all.delays(), inMS(siteBound), demoRate(all.cameraBPS), demoRate(least), demoRate(siteMinBPS), demoRate(all.nodeBPS)), top.DefaultWidth), "\n"))
}

// call starts the call's packets from a node to the other.
func (d *siteDemo) call(from int) error {
	return testbed.InNetNS(d.nodes[from].containers["call"].NetNSPath(), func() error {
		to := netip.AddrPortFrom(siteNodes[1-from].Addr(), siteCallPort)
		sender, err := traffic.NewTimed(traffic.TimedOptions{Targets: []netip.AddrPort{to}, PayloadBytes: callBytes, IntervalNS: float64(callInterval.Nanoseconds())})
		if err != nil {
			return err
		}
		sender.Start(traffic.MonotonicNS())
		d.stop = append(d.stop, func() { _ = sender.Stop() })
		return nil
	})
}

// backup starts as many connections as backups have.
func (d *siteDemo) backup(ctx context.Context, from *testbed.Process, to netip.Addr) error {
	return testbed.InNetNS(from.NetNSPath(), func() error {
		sender, err := traffic.NewSender(ctx, traffic.SenderOptions{Target: netip.AddrPortFrom(to, siteBackupPort), Protocol: traffic.TCP, Connections: 8})
		if err != nil {
			return err
		}
		sender.Start(traffic.MonotonicNS())
		d.stop = append(d.stop, sender.Stop)
		return nil
	})
}

func (d *siteDemo) startCall(ctx context.Context) error {
	d.scene("A call between the nodes, with weir.class=ef, weir.dscp=mark and weir.latency=%v: each side sends 50 packets a second. The agents mark them as EF, and the switches trust their ports.", siteBound)
	for i := range d.nodes {
		if err := d.call(i); err != nil {
			return err
		}
	}
	_, err := d.look(ctx, siteScene)
	return err
}

// camera returns the camera's specification.
func (d *siteDemo) camera() map[string]any {
	return map[string]any{
		"par":    map[string]any{"serviceName": edgeCamera, "imageName": edgeVideo},
		"ports":  []any{map[string]any{"host": cameraPort, "container": 80}},
		"limits": map[string]any{"instances": 1},
		"labels": map[string]any{policy.LabelMin: policy.FormatRate(siteMinBPS)},
	}
}

func (d *siteDemo) startCamera(ctx context.Context) error {
	d.scene("weir-edge deploys a camera with weir.min=%s on node 1, and asks weir-sdn for the same on each link to the users. %d viewers on node 2 take what they get.", policy.FormatRate(siteMinBPS), cameraViewers)
	path, err := d.manager.WriteSpecification(edgeCamera, d.camera())
	if err != nil {
		return err
	}
	if _, err := d.manager.Run("deploy", path); err != nil {
		return err
	}
	sdn := client.NewSDN(d.sdnSocket())
	err = d.await(ctx, "the minimum is promised on each link", func(ctx context.Context) error {
		l, err := sdn.Links(ctx)
		if err == nil && (len(l.Promises) != 1 || l.Promises[0].Expires != nil || d.kernel && l.Promises[0].State != v1.PromiseInForce) {
			err = fmt.Errorf("weir-sdn has %+v", l.Promises)
		}
		return err
	})
	if err != nil {
		return err
	}
	err = d.manager.Await(ctx, sitePatience, func(s edge.Snapshot) error {
		if !slices.ContainsFunc(s.Instances, func(i edge.Instance) bool { return i.Service == edgeCamera && i.State == "running" }) {
			return errors.New("the camera does not answer yet")
		}
		return nil
	})
	if err != nil {
		return err
	}
	d.viewers = demoUsers{name: edgeCamera, dial: func(_ context.Context, network, address string) (conn net.Conn, err error) {
		entered := testbed.InNetNS(d.nodes[1].space.NetNSPath(), func() error {
			conn, err = (&net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}).Dial(network, address)
			return nil
		})
		return conn, errors.Join(entered, err)
	}}
	d.viewers.come(ctx, fmt.Sprintf("http://%v:%d/", siteNodes[0].Addr(), cameraPort), cameraViewers)
	_, err = d.look(ctx, siteScene)
	return err
}

func (d *siteDemo) fillUplinks(ctx context.Context) error {
	d.scene("A backup on each node sends to the other, on 8 connections, all that it can. The uplinks have %s.", policy.FormatRate(siteRateBPS))
	for i := range d.nodes {
		if err := d.backup(ctx, d.nodes[i].containers["backup"], siteNodes[1-i].Addr()); err != nil {
			return err
		}
	}
	return d.lookBeside(ctx)
}

func (d *siteDemo) fillLink(ctx context.Context) error {
	if !d.kernel {
		d.scene("Here the desk would fill the link between the switches, which takes the module openvswitch: in user space switches send nothing to queues, so nothing is shown.")
		return nil
	}
	d.scene("A desk at node 1's switch, without an agent, sends to node 2 on 8 connections, too. The link between the switches has %s.", policy.FormatRate(siteLinkBPS))
	if err := d.backup(ctx, d.desk, siteNodes[1].Addr()); err != nil {
		return err
	}
	return d.lookBeside(ctx)
}

// why shows why the camera has its minimum: at the uplink and on each link.
func (d *siteDemo) why(ctx context.Context) error {
	d.sayAll()
	d.scene("Why? weir-edge explain camera, and weir sdn links:")
	explained, err := d.manager.Run("explain", edgeCamera)
	if err != nil {
		return err
	}
	links, err := d.ovs.Run(ctx, nil, d.weirProgram, "sdn", "links", "--socket", d.sdnSocket())
	if err != nil {
		return err
	}
	for _, out := range []string{string(explained), links} {
		for line := range strings.Lines(strings.TrimSpace(out) + "\n\n") {
			_, _ = io.WriteString(d.out, cmdline.Cut(strings.TrimRight(line, "\n"), top.DefaultWidth)+"\n")
		}
	}
	return nil
}
