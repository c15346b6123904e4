package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/top"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// siteSpan is what receivers measured in a span of time.
type siteSpan struct {
	took   time.Duration
	call   []time.Duration // for how long packets were on their way, in both directions
	sent   uint64          // packets of the camera until the end of the span
	camera []traffic.Arrival
}

// span returns what has arrived since a moment, which is that of the last call.
func (d *siteDemo) span(since time.Time) siteSpan {
	s := siteSpan{took: time.Since(since)}
	for i := range d.nodes {
		arrivals, _ := d.nodes[i].receiver.Take()
		for _, a := range arrivals[0] {
			s.call = append(s.call, a.Delay())
		}
		s.camera = append(s.camera, arrivals[1]...)
	}
	slices.Sort(s.call)
	if d.camera != nil {
		s.sent = d.camera.Sent()[0]
	}
	return s
}

// delays says how long the call's packets were on their way.
func (s *siteSpan) delays() string {
	if len(s.call) == 0 {
		return "call: nothing"
	}
	return fmt.Sprintf("call after %.1f ms at the 99th percentile, %.1f ms at most", inMS(s.call[(len(s.call)-1)*99/100]), inMS(s.call[len(s.call)-1]))
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// cameraBPS returns the rate of a number of the camera's frames.
func (s *siteSpan) cameraBPS(frames int) float64 {
	return 8 * float64(frames*traffic.WireBytesUDP(siteNodes[1].Addr(), cameraBytes)) / s.took.Seconds()
}

// lost returns how many of the camera's packets are missing among those that arrived.
func (s *siteSpan) lost() int {
	if len(s.camera) == 0 {
		return 0
	}
	return int(s.camera[len(s.camera)-1].Sequence-s.camera[0].Sequence) + 1 - len(s.camera)
}

// String says what arrived.
func (s *siteSpan) String() string {
	if len(s.camera) == 0 {
		return s.delays()
	}
	text := fmt.Sprintf("%s; camera %s", s.delays(), demoRate(s.cameraBPS(len(s.camera))))
	if lost := s.lost(); lost > 0 {
		text += fmt.Sprintf(", %d packets lost", lost)
	}
	return text
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
		d.look(ctx, time.Second)
	}
	return nil
}

// scene announces what happens.
func (d *siteDemo) scene(format string, args ...any) {
	d.say("\n%s", strings.Join(cmdline.Wrap(fmt.Sprintf(format, args...), top.DefaultWidth), "\n"))
}

// look prints each second what arrives, for a time, and returns it.
func (d *siteDemo) look(ctx context.Context, during time.Duration) (spans []siteSpan) {
	began := time.Now()
	d.span(began)
	for end := began.Add(during); time.Now().Before(end) && ctx.Err() == nil; {
		wait(ctx, time.Second)
		s := d.span(began)
		began = time.Now()
		spans = append(spans, s)
		_, _ = io.WriteString(d.out, "arrives: "+s.String()+"\n") // a closed pipe ends the demo by SIGPIPE
	}
	return spans
}

// sayAll says what the call and the camera got since the uplinks are full.
func (d *siteDemo) sayAll() {
	all, sent, lost := siteSpan{}, uint64(0), 0
	for _, scene := range d.full {
		one := siteSpan{}
		for _, s := range scene {
			all.took += s.took
			all.call, one.camera = append(all.call, s.call...), append(one.camera, s.camera...)
		}
		all.camera = append(all.camera, one.camera...)
		sent += scene[len(scene)-1].sent - scene[0].sent + uint64(len(scene[0].camera))
		lost += one.lost()
	}
	slices.Sort(all.call)
	d.say("%s", strings.Join(cmdline.Wrap(fmt.Sprintf("In all %.0f seconds with full uplinks: %s, of %.0f; camera %s of %s sent, %d packets lost.",
		all.took.Seconds(), all.delays(), inMS(siteBound), demoRate(all.cameraBPS(len(all.camera))), demoRate(all.cameraBPS(int(sent))), lost), top.DefaultWidth), "\n"))
}

// send starts timed packets from a container to the other node, and returns their sender.
func (d *siteDemo) send(from *testbed.Process, to netip.AddrPort, bytes int, every time.Duration) (sender *traffic.Timed, err error) {
	err = testbed.InNetNS(from.NetNSPath(), func() error {
		sender, err = traffic.NewTimed(traffic.TimedOptions{Targets: []netip.AddrPort{to}, PayloadBytes: bytes, IntervalNS: float64(every.Nanoseconds())})
		if err != nil {
			return err
		}
		sender.Start(traffic.MonotonicNS())
		d.stop = append(d.stop, func() { _ = sender.Stop() })
		return nil
	})
	return sender, err
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
		to := netip.AddrPortFrom(siteNodes[1-i].Addr(), siteCallPort)
		if _, err := d.send(d.nodes[i].containers["call"], to, callBytes, callInterval); err != nil {
			return err
		}
	}
	d.look(ctx, siteScene)
	return nil
}

// promise is the camera's minimum on the links: its packets from the first node to a port of the second.
func (d *siteDemo) promise() v1.SDNPromiseRequest {
	return v1.SDNPromiseRequest{
		ID: "demo/camera", Service: "camera", Node: siteNodes[1].Addr(), Peer: siteNodes[0].Addr(), Protocol: "udp", Port: siteCameraPort, BackBPS: siteMinBPS,
	}
}

func (d *siteDemo) startCamera(ctx context.Context) error {
	minimum := policy.FormatRate(siteMinBPS)
	d.scene("A camera on node 1 with weir.min=%s sends %s to node 2. weir-sdn is asked for the same minimum on each link of the way (POST /v1/promises).", minimum, policy.FormatRate(siteCameraBPS))
	sdn := client.NewSDN(d.sdnSocket())
	err := d.await(ctx, "the minimum is promised", func(ctx context.Context) error {
		if _, err := sdn.Reserve(ctx, d.promise()); err != nil {
			return err
		}
		p, err := sdn.Confirm(ctx, d.promise())
		if err == nil && d.kernel && p.State != v1.PromiseInForce {
			err = fmt.Errorf("it is %s: %s", p.State, p.Reason)
		}
		return err
	})
	if err != nil {
		return err
	}
	to := netip.AddrPortFrom(siteNodes[1].Addr(), siteCameraPort)
	wire := traffic.WireBytesUDP(to.Addr(), cameraBytes)
	d.camera, err = d.send(d.nodes[0].containers["camera"], to, cameraBytes, time.Duration(float64(wire)*8/siteCameraBPS*1e9))
	if err != nil {
		return err
	}
	d.look(ctx, siteScene)
	return nil
}

func (d *siteDemo) fillUplinks(ctx context.Context) error {
	d.scene("A backup on each node sends to the other, on 8 connections, all that it can. The uplinks are full.")
	for i := range d.nodes {
		if err := d.backup(ctx, d.nodes[i].containers["backup"], siteNodes[1-i].Addr()); err != nil {
			return err
		}
	}
	d.full = append(d.full, d.look(ctx, siteScene))
	return nil
}

func (d *siteDemo) fillLink(ctx context.Context) error {
	if !d.kernel {
		d.scene("Here the desk would fill the link between the switches, which takes the module openvswitch: in user space switches send nothing to queues, so nothing keeps a minimum there, and nothing is shown.")
		return nil
	}
	d.scene("A desk at node 1's switch, without an agent, sends to node 2 on 8 connections. Now the link between the switches is full, too, and only its queues keep order.")
	if err := d.backup(ctx, d.desk, siteNodes[1].Addr()); err != nil {
		return err
	}
	d.full = append(d.full, d.look(ctx, siteScene))
	return nil
}

// why shows why the camera has its minimum: at the uplink and on each link.
func (d *siteDemo) why(ctx context.Context) error {
	d.sayAll()
	d.scene("Why? weir explain camera, at node 1, and weir sdn links:")
	for _, args := range [][]string{
		{"explain", "camera", "--socket", d.nodes[0].agentDir.Socket()},
		{"sdn", "links", "--socket", d.sdnSocket()},
	} {
		out, err := d.ovs.Run(ctx, nil, d.program, args...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(strings.TrimSpace(out) + "\n\n") {
			_, _ = io.WriteString(d.out, cmdline.Cut(strings.TrimRight(line, "\n"), top.DefaultWidth)+"\n")
		}
	}
	return nil
}
