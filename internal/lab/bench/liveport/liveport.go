// Package liveport holds the queueing model against real packets: three queues in front of a
// link of 100 Mbit/s, served by a program as the model has it (traffic.Port), and
// by HTB. The model is solved for what really arrived, so that how well chance is
// imitated is not part of the comparison.
package liveport

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/model"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// Suite is its name.
const Suite = "model"

// Options say what is measured.
type Options struct {
	measure.RunOptions
	Seed uint64
	// Only selects ports by name; nil means all.
	Only *regexp.Regexp
}

// Check returns an error for invalid options, before anything is started.
func (o Options) Check() error {
	if err := o.CheckRuns(MinDuration); err != nil {
		return err
	}
	if len(o.cases()) == 0 {
		return fmt.Errorf("no port matches %q", o.Only)
	}
	return nil
}

// cases returns the selected ports.
func (o Options) cases() []Case {
	return slices.DeleteFunc(allCases(), func(c Case) bool { return o.Only != nil && !o.Only.MatchString(c.Name) })
}

const (
	// MinDuration is what ten batches of a few turns take.
	MinDuration = 300 * time.Millisecond
	// linkBPS is the paper's link.
	linkBPS = 100e6
	// portPort is where the port's packets go: EF, AF and BE one after the other.
	portPort = 5301
	// portBurstBytes is the link's bucket: the largest packets must fit.
	portBurstBytes = 70000
	portMTUBytes   = 65535
	// portOnTheWay is longer than any packet is on the way.
	portOnTheWay = 200 * time.Millisecond
	// portPatience is how long after its time a port may end.
	portPatience = 30 * time.Second
)

// Servers of a live port.
const (
	serverPort = "port" // a program that does what the model says
	serverHTB  = "htb"
)

// Case is a port that is measured.
type Case struct {
	Name   string `json:"name"`
	Server string `json:"server"`
	// ArrivalBPS, PacketBytes, AFRateBPS, Places and PollPerSecond are the model's.
	ArrivalBPS    [3]float64 `json:"arrival_bps"`
	PacketBytes   float64    `json:"packet_bytes"`
	FixedSize     bool       `json:"fixed_size,omitempty"`
	AFRateBPS     float64    `json:"af_rate_bps"`
	Places        [3]int     `json:"places"`
	PollPerSecond float64    `json:"poll_per_second"`
}

// allCases begin with the paper's port. Larger packets take longer, so that what the
// machine adds to every packet weighs less: the difference tells the two apart.
func allCases() []Case {
	paper := Case{
		Name: "the paper's port, AF at 40 Mbit/s", Server: serverPort, ArrivalBPS: [3]float64{33.3e6, 33.3e6, 33.3e6}, PacketBytes: 1000,
		AFRateBPS: 40e6, Places: [3]int{5, 5, 5}, PollPerSecond: 100,
	}
	last := paper
	last.Name, last.AFRateBPS = "AF at 66 Mbit/s", 66e6
	short := paper
	short.Name, short.PollPerSecond = "turns of 1 ms", 1000
	light := paper
	light.Name, light.ArrivalBPS, light.Places, light.PollPerSecond = "light load", [3]float64{20e6, 10e6, 10e6}, [3]int{20, 20, 20}, 1000
	large := paper
	large.Name, large.PacketBytes = "packets of 8000 bytes", 8000
	htb := paper
	htb.Name, htb.Server = "HTB, the paper's port", serverHTB
	fixed := htb
	fixed.Name, fixed.FixedSize = "HTB, all packets of 1000 bytes", true
	return []Case{paper, last, short, light, large, htb, fixed}
}

// solved returns the model's solution for the packets that arrived at a port.
func (c Case) solved(ctx context.Context, seen observation, serviceBPS [3]float64) (*model.Result, error) {
	port := model.Port{
		Places: c.Places, PollPerSecond: c.PollPerSecond, AfterEF: model.Resume, Switch: model.AtPacketEnd, Empty: model.Lend,
	}
	for q := range port.ArrivalPPS {
		port.ArrivalPPS[q] = float64(seen.Port.Arrived[q]) / seen.seconds()
		port.ServicePPS[q] = serviceBPS[q] / (8 * seen.meanBytes())
	}
	return model.Solve(ctx, port)
}

// serviceBPS returns the rate at which each queue is served.
func (c Case) serviceBPS() [3]float64 {
	return [3]float64{linkBPS, c.AFRateBPS, linkBPS - c.AFRateBPS}
}

// lineRate is every queue served at the rate of the link.
var lineRate = [3]float64{linkBPS, linkBPS, linkBPS}

// observation is one run of a case.
type observation struct {
	Port traffic.PortResult
	// Arrivals are what the neighbour got, by queue.
	Arrivals [][]traffic.Arrival
	bench.Disturbance
}

func (o observation) seconds() float64 {
	return time.Duration(o.Port.UntilNS - o.Port.FromNS).Seconds()
}

// meanBytes returns the mean size of the packets that arrived, on the wire.
func (o observation) meanBytes() float64 {
	count := uint64(0)
	for _, arrived := range o.Port.Arrived {
		count += arrived
	}
	return float64(o.Port.ArrivedBytes) / float64(max(count, 1))
}

// Run measures all live ports.
func Run(ctx context.Context, options Options) (found Report, err error) {
	if err := options.Check(); err != nil {
		return found, err
	}
	started := time.Now()
	b, err := bench.NewBed(ctx, bench.Options{}, 1)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	r := &runner{options: options, bed: b}
	if err := r.prepare(ctx); err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, r.receiver.Close()) }()
	if r.Recorder, err = bench.NewRecorder[string, observation](ctx, options.RunOptions); err != nil {
		return found, err
	}
	defer func() { r.Close(&found.Report) }()
	options.Journal.Expect(options.Repeat * len(options.cases()))
	for round := range options.Repeat {
		for _, c := range options.cases() {
			untaken, err := r.TakeKept(c.Name)
			if err != nil {
				return found, err
			}
			if len(untaken) == 0 || r.LeaveOut(1) {
				continue
			}
			err = r.Run(ctx, c.Name, c.Name, options.Warmup+options.Duration, func() (observation, error) {
				fmt.Fprintf(options.Progress, "round %d of %d, %s\n", round+1, options.Repeat, c.Name)
				return r.observe(ctx, c, uint64(round))
			})
			if err != nil {
				return found, err
			}
		}
	}
	found = Report{
		Report: options.NewReport(Suite, note, started, b.Environment(ctx, options.Version)),
		Suite:  Suite, DurationS: options.Duration.Seconds(), WarmupS: options.Warmup.Seconds(), Failures: map[string]string{},
	}
	found.Verdicts, found.Seed = []report.Verdict{}, options.Seed
	r.Complete(&found.Report)
	for _, c := range options.cases() {
		of := r.Of(c.Name)
		if of.Failure != nil {
			found.Failures[c.Name] = of.Failure.Error()
		}
		if len(of.Seen) == 0 {
			continue
		}
		result, err := newResult(ctx, c, of.Seen)
		if err != nil {
			return found, err
		}
		found.Results = append(found.Results, result)
	}
	found.complete()
	found.TookSeconds = time.Since(started).Seconds()
	return found, nil
}

// runner runs live ports on a bed.
type runner struct {
	*bench.Recorder[string, observation] // by the name of the case
	options                              Options
	bed                                  *bench.Bed
	receiver                             *traffic.Receiver
}

// prepare makes room for large packets and opens the receiver.
func (r *runner) prepare(ctx context.Context) error {
	host := r.bed.Host
	mtu := strconv.Itoa(portMTUBytes)
	_, err := bench.Output(host.PeerCommand(ctx, "ip", "link", "set", "dev", host.PeerInterface, "mtu", mtu))
	err = errors.Join(err, r.bed.OnHostAll(ctx, [][]string{
		{"ip", "link", "set", "dev", host.UplinkName, "mtu", mtu}, {"ip", "link", "set", "dev", "lo", "up"},
	}))
	if err != nil {
		return fmt.Errorf("make room for large packets: %w", err)
	}
	return testbed.InNetNS(host.PeerNetNSPath(), func() (err error) {
		r.receiver, err = traffic.NewReceiver(portPort, portPort+1, portPort+2)
		return err
	})
}

func (r *runner) observe(ctx context.Context, c Case, round uint64) (seen observation, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Warmup+r.options.Duration+portPatience)
	defer cancel()
	defer func() { err = errors.Join(err, r.bed.ClearUplink(context.WithoutCancel(ctx))) }()
	if err := c.setLink(ctx, r.bed); err != nil {
		return seen, err
	}
	options := traffic.PortOptions{
		Target: netip.AddrPortFrom(r.bed.Host.PeerAddr, portPort), MeanBytes: c.PacketBytes, FixedSize: c.FixedSize,
		ServiceBPS: c.serviceBPS(), Places: c.Places, PollPerSecond: c.PollPerSecond, Seed: r.options.Seed + round,
		Warmup: r.options.Warmup, Duration: r.options.Duration,
	}
	for q, rate := range c.ArrivalBPS {
		options.ArrivalPPS[q] = rate / (8 * c.PacketBytes)
		if c.Server == serverHTB {
			options.Direct = append(options.Direct, htbMajor|(htbFirstLeaf+q))
		}
	}
	input, err := json.Marshal(options)
	if err != nil {
		return seen, err
	}
	r.receiver.Take() // what came late of the run before
	cmd := r.bed.Host.Command(ctx, testbed.LabProgram(r.options.WeirBinary), "traffic", "port")
	cmd.Stdin = bytes.NewReader(input)
	fromNS := traffic.MonotonicNS()
	printed, err := bench.Output(cmd)
	if err != nil {
		return seen, err
	}
	if err := json.Unmarshal(printed, &seen.Port); err != nil {
		return seen, fmt.Errorf("read what the port did: %w", err)
	}
	seen.Pause = r.Longest(fromNS, traffic.MonotonicNS())
	if err := bench.WaitUntil(ctx, traffic.MonotonicNS()+portOnTheWay.Nanoseconds()); err != nil {
		return seen, err
	}
	all, overruns := r.receiver.Take()
	if overruns > 0 {
		return seen, fmt.Errorf("the receiver lost %d packets: it did not run", overruns)
	}
	for _, arrivals := range all {
		var counted []traffic.Arrival
		for _, one := range arrivals {
			if one.SentNS >= seen.Port.FromNS && one.SentNS < seen.Port.UntilNS {
				counted = append(counted, one)
			}
		}
		seen.Arrivals = append(seen.Arrivals, counted)
	}
	return seen, nil
}

const (
	// htbMajor is handle 1:, htbFirstLeaf EF's class.
	htbMajor     = 1 << 16
	htbFirstLeaf = 0x10
	// htbEFBurst is the bucket of EF.
	htbEFBurst = 15000
)

// setLink puts the case's server in front of the link: a bucket that stands for its
// rate, or HTB with a class for each queue. There EF comes first (prio) and has half of
// the link as its rate and a bucket of some packets, so that it need not borrow, which
// comes after what others have of their own; AF and BE share the other half as their
// rates are. A packet on its way is in no queue of HTB's, so they have a place less.
func (c Case) setLink(ctx context.Context, b *bench.Bed) error {
	dev, rate := b.Host.UplinkName, bench.TCRate(linkBPS)
	commands := [][]string{{
		"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "tbf", "rate", rate,
		"burst", strconv.Itoa(portBurstBytes), "limit", "10000000",
	}}
	if c.Server == serverHTB {
		// A packet, and no more: a larger bucket would let packets go faster than the
		// link.
		burst := strconv.Itoa(int(c.PacketBytes))
		commands = [][]string{
			{"tc", "qdisc", "replace", "dev", dev, "root", "handle", "1:", "htb"},
			{"tc", "class", "add", "dev", dev, "parent", "1:", "classid", "1:1", "htb", "rate", rate, "ceil", rate, "burst", burst, "cburst", burst},
		}
		const half = linkBPS / 2
		bursts := [3]string{strconv.Itoa(htbEFBurst), burst, burst}
		for q, own := range [3]float64{half, half * c.AFRateBPS / linkBPS, half * (1 - c.AFRateBPS/linkBPS)} {
			id := fmt.Sprintf("1:%x", htbFirstLeaf+q)
			commands = append(commands,
				[]string{"tc", "class", "add", "dev", dev, "parent", "1:1", "classid", id, "htb", "rate", bench.TCRate(uint64(own)), "ceil", rate,
					"burst", bursts[q], "cburst", burst, "quantum", "1514", "prio", strconv.Itoa(min(q, 1))},
				[]string{"tc", "qdisc", "add", "dev", dev, "parent", id, "pfifo", "limit", strconv.Itoa(c.Places[q] - 1)})
		}
	}
	if err := b.OnHostAll(ctx, commands); err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	return nil
}
