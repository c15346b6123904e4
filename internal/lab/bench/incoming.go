package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/meter"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// timestampedSegmentHeaderBytes are the headers of IPv4 and of TCP with timestamps.
const timestampedSegmentHeaderBytes = 20 + 32

// arrivals count, by container, the bytes that their receivers got.
type arrivals interface {
	Snapshot() (meter.Snapshot, error)
	// StartSeries returns the start of the first bin, by CLOCK_MONOTONIC.
	StartSeries() (originNS int64, err error)
	Series() (meter.Series, error)
	close() error
}

// sent counts what containers send, at the neighbour.
type sent struct {
	*meter.Meter
	at string // its network namespace
}

func (s sent) close() error { return testbed.InNetNS(s.at, s.Close) }

// downloads count what containers' applications receive, as bytes on the wire: of what the link
// carries, each full frame holds as much payload as its headers leave.
type downloads struct {
	bed        *Bed
	c          Case
	containers []Placed
	plan       timing
	receivers  [][]*traffic.Download // by container
	// devices count at the containers' interfaces; none unless the case is about reaction or a maximum.
	devices  []*meter.Meter
	originNS int64 // of the series
}

// newDownloads counts for a case that downloads. Reactions and maximums are judged where packets enter containers: a program that
// reads late is no slow scheduler, and behind a segment that TCP lost, an application gets nothing for a round trip.
func (b *Bed) newDownloads(c Case, containers []Placed, plan timing) (d *downloads, err error) {
	d = &downloads{bed: b, c: c, containers: containers, plan: plan, receivers: make([][]*traffic.Download, len(containers))}
	if !c.Measures.has(MeasureReaction | MeasureOvershoot) {
		return d, nil
	}
	for _, one := range containers {
		err := one.Enter(func() error {
			counted, err := meter.New(meter.Options{
				Interface: testbed.ContainerInterface, BasePort: echoPort, Slots: 1, BinWidth: plan.binWidth, Bins: plan.bins,
			})
			if err == nil {
				d.devices = append(d.devices, counted)
			}
			return err
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("container %s: %w", one.Name, err), d.close())
		}
	}
	return d, nil
}

// newSender returns a server's sender to container i.
func (d *downloads) newSender(ctx context.Context, i int, overload float64) (*traffic.Sender, error) {
	one := d.containers[i]
	options := traffic.DownloadOptions{
		SenderOptions: senderOptions(d.c, one, overload),
		InServer:      func(fn func() error) error { return testbed.InNetNS(d.bed.serverNetNSPath(d.c), fn) },
		InClient:      one.Enter,
		BinWidth:      d.plan.binWidth, Bins: d.plan.bins,
	}
	options.Target = netip.AddrPortFrom(one.PeerAddress, 0)
	if d.c.Path != nil {
		options.CongestionControl = d.c.Path.CongestionControl
	}
	sender, receiver, err := traffic.NewDownload(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", one.Name, err)
	}
	d.receivers[i] = append(d.receivers[i], receiver)
	return sender, nil
}

// wireBytes is what payload of container i takes on the link.
func (d *downloads) wireBytes(i int, payload uint64) uint64 {
	one := d.containers[i]
	encapsulation := EthernetMTUBytes - one.MTUBytes
	payloadBytes, frameBytes := one.MTUBytes-timestampedSegmentHeaderBytes, measure.FrameBytes
	if one.Load.Protocol == traffic.UDP {
		payloadBytes = senderOptions(d.c, one, 1).PayloadBytes
		frameBytes = traffic.WireBytesUDP(one.PeerAddress, payloadBytes) + encapsulation
	}
	return uint64(math.Round(float64(payload) * float64(frameBytes) / float64(payloadBytes)))
}

// Snapshot counts as other what the bottleneck before the uplink sent, if there is one. That is asked
// first, as it takes a while, and all else is read at once.
func (d *downloads) Snapshot() (s meter.Snapshot, err error) {
	if d.c.Path != nil {
		if s.Other.Bytes, err = d.bed.bottleneckBytes(); err != nil {
			return s, err
		}
	}
	s.MonotonicNS = traffic.MonotonicNS()
	for i, list := range d.receivers {
		counter := meter.Counter{}
		for _, receiver := range list {
			payload, datagrams := receiver.Received()
			counter.Bytes += d.wireBytes(i, payload)
			counter.Packets += datagrams
		}
		s.Slots = append(s.Slots, counter)
	}
	return s, nil
}

// StartSeries implements arrivals.
func (d *downloads) StartSeries() (originNS int64, err error) {
	originNS = traffic.MonotonicNS()
	d.originNS = originNS
	for _, list := range d.receivers {
		for _, receiver := range list {
			receiver.StartSeries(originNS)
		}
	}
	for _, device := range d.devices {
		if _, err := device.StartSeries(); err != nil {
			return 0, err
		}
	}
	return originNS, nil
}

// Series implements arrivals.
func (d *downloads) Series() (meter.Series, error) {
	s := meter.Series{BinWidth: d.plan.binWidth}
	for i, list := range d.receivers {
		row := make([]uint64, d.plan.bins)
		for _, receiver := range list {
			for bin, payload := range receiver.Series() {
				row[bin] += d.wireBytes(i, payload)
			}
		}
		s.Bytes = append(s.Bytes, row)
	}
	for i, device := range d.devices {
		counted, err := device.Series()
		if err != nil {
			return s, err
		}
		clear(s.Bytes[i])
		late := int((counted.OriginNS - d.originNS) / d.plan.binWidth.Nanoseconds()) // series start one after another
		copy(s.Bytes[i][min(late, d.plan.bins):], counted.Other)
	}
	return s, nil
}

func (d *downloads) close() error {
	var problems []error
	for i, device := range d.devices {
		problems = append(problems, d.containers[i].Enter(device.Close))
	}
	for _, list := range d.receivers {
		for _, receiver := range list {
			problems = append(problems, receiver.Close())
		}
	}
	return errors.Join(problems...)
}

// serverNetNSPath is where the containers of a case download from.
func (b *Bed) serverNetNSPath(c Case) string {
	if c.Path != nil {
		return b.line.NetNSPath
	}
	return b.Host.PeerNetNSPath()
}

// usePath makes the way of a case, and has its containers use it. The caller calls remove when the
// case is over.
func (b *Bed) usePath(ctx context.Context, c Case, containers []Placed) (remove func() error, err error) {
	remove = func() error { return nil }
	if c.Path == nil {
		return remove, nil
	}
	if b.line == nil {
		line, err := b.Host.AddDelayLine(ctx)
		if err != nil {
			return remove, err
		}
		b.line = line
	}
	if b.farEcho == nil {
		err = testbed.InNetNS(b.line.NetNSPath, func() (err error) {
			b.farEcho, err = traffic.NewEcho(echoPort)
			return err
		})
		if err != nil {
			return remove, err
		}
	}
	b.line.SetRoundTrip(c.Path.RoundTrip)
	for i := range containers {
		containers[i].PeerAddress = b.line.Addr
	}
	device := b.Host.PeerInterface
	remove = func() error { return b.onPeer("tc", "qdisc", "del", "dev", device, "root") }
	queueBytes := float64(c.Path.RateBPS) / 8 * c.Path.QueueTime.Seconds()
	return remove, b.onPeer("tc", "qdisc", "replace", "dev", device, "root", "handle", "1:", "tbf", "rate", TCRate(c.Path.RateBPS),
		"burst", strconv.FormatUint(burstBytes(c.Path.RateBPS), 10), "limit", strconv.FormatUint(uint64(queueBytes), 10))
}

func (b *Bed) onPeer(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	_, err := Output(b.Host.PeerCommand(ctx, name, args...))
	return err
}

// bottleneckBytes is what the bottleneck has sent, on the wire: what arrives at the uplink.
func (b *Bed) bottleneckBytes() (uint64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), toolTimeout)
	defer cancel()
	out, err := Output(b.Host.PeerCommand(ctx, "tc", "-s", "-j", "qdisc", "show", "dev", b.Host.PeerInterface, "root"))
	if err != nil {
		return 0, err
	}
	var qdiscs []struct {
		Bytes uint64 `json:"bytes"`
	}
	if err := json.Unmarshal(out, &qdiscs); err != nil || len(qdiscs) != 1 {
		return 0, fmt.Errorf("read what the bottleneck sent: %w: %s", err, out)
	}
	return qdiscs[0].Bytes, nil
}

// everySecond are the actions that read the counters after each second of the window, at whose begin
// they are read anyway.
func (d *downloads) everySecond(read counters, seconds *[]reading) []action {
	var actions []action
	for at := d.plan.windowFrom + time.Second; at <= d.plan.windowUntil; at += time.Second {
		actions = append(actions, action{at, func() error {
			r, err := read.read()
			*seconds = append(*seconds, r)
			return err
		}})
	}
	return actions
}

// withoutFirstSecond is a series without the first second of what a container receives, in which a sender that
// hears of a maximum by the round trip may be above it.
func (c Case) withoutFirstSecond(bins []uint64, binWidth time.Duration) []uint64 {
	if !c.Incoming {
		return bins
	}
	return bins[firstSecond(bins, binWidth):]
}

// firstSecond is the bin at which the second ends that begins with the first bytes.
func firstSecond(bins []uint64, binWidth time.Duration) int {
	first := max(slices.IndexFunc(bins, func(bytes uint64) bool { return bytes > 0 }), 0)
	return min(first+int(time.Second/binWidth), len(bins))
}

// incomingOf is what containers received second by second.
func incomingOf(c Case, seen []observation) *Incoming {
	found := &Incoming{Protocol: string(c.Containers[len(c.Containers)-1].Load.Protocol)}
	for i, one := range c.Containers {
		if !c.Measures.has(MeasureOvershoot) || one.MaxBPS == 0 {
			continue
		}
		over := each(seen, func(o observation) float64 {
			until := firstSecond(o.Series[i], o.BinWidth)
			return overshoot(o.Series[i][:until], o.BinWidth, time.Second, one.MaxBPS)
		})
		found.FirstSecondOver = &over
	}
	hasMinimum := func(one Container) bool { return one.MinBPS > 0 }
	if slices.ContainsFunc(c.Containers, hasMinimum) {
		found.MinimumKept = ofSeconds(seen, slices.Min, func(s second) float64 {
			kept := math.Inf(1)
			for i, one := range c.Containers {
				if hasMinimum(one) {
					kept = min(kept, s.bps(func(s meter.Snapshot) uint64 { return s.Slots[i].Bytes })/float64(one.MinBPS))
				}
			}
			return kept
		})
	}
	if c.Path != nil {
		arrived := func(s second) float64 {
			return s.bps(func(s meter.Snapshot) uint64 { return s.Other.Bytes }) / float64(c.LinkBPS)
		}
		found.ArrivesLeast, found.ArrivesMost = ofSeconds(seen, slices.Min, arrived), ofSeconds(seen, slices.Max, arrived)
	}
	return found
}

// second is a second of a run.
type second struct{ from, until meter.Snapshot }

// bps returns the rate of what is counted.
func (s second) bps(counted func(meter.Snapshot) uint64) float64 {
	return float64(counted(s.until)-counted(s.from)) * 8 / (float64(s.until.MonotonicNS-s.from.MonotonicNS) / 1e9)
}

// ofSeconds returns the worst value of the seconds of each run; nil if no run has any.
func ofSeconds(seen []observation, worst func([]float64) float64, value func(second) float64) *measure.Spread {
	var all []float64
	for _, o := range seen {
		var values []float64
		for i := 1; i < len(o.Seconds); i++ {
			values = append(values, value(second{o.Seconds[i-1].Snapshot, o.Seconds[i].Snapshot}))
		}
		if len(values) > 0 {
			all = append(all, worst(values))
		}
	}
	if len(all) == 0 {
		return nil
	}
	spread := measure.SpreadOf(all)
	return &spread
}
