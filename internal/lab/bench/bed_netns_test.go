//go:build netns

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// runAndCheck runs a suite and checks its report. When that fails, and a processor
// stood still during a run that counts, it does so again.
func runAndCheck(t *testing.T, options Options, check func(report Report, errorf func(format string, args ...any))) {
	t.Helper()
	const maxRuns = 4
	for run := 1; ; run++ {
		report, err := Run(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		check(report, func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) })
		if len(wrong) == 0 {
			return
		}
		if report.PausedRuns == 0 || run == maxRuns {
			for _, one := range wrong {
				t.Error(one)
			}
			t.Logf("in %d runs a processor stood still", report.PausedRuns)
			return
		}
		t.Logf("once more, as in %d runs a processor stood still: %q", report.PausedRuns, wrong)
	}
}

// TestSuiteMeasuresHTB runs a few cases for real: HTB keeps weights and
// ceilings of equal senders, and no QoS does not.
func TestSuiteMeasuresHTB(t *testing.T) {
	t.Parallel()
	options := Options{
		Suite:      "qcon",
		RateBPS:    100e6,
		Peers:      []string{PeerNone, PeerHTB},
		Only:       regexp.MustCompile(`figure 7: weights 1:2:3|figure 10: max 10,10,15,25|table 1: idle`),
		Overload:   1.5,
		Containers: 1,
		CacheDir:   t.TempDir(),
		RunOptions: measure.RunOptions{Duration: 1500 * time.Millisecond, Warmup: 500 * time.Millisecond, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	}
	runAndCheck(t, options, func(report Report, errorf func(string, ...any)) {
		if len(report.Results) != 6 {
			t.Fatalf("%d results, want 3 cases of 2 peers", len(report.Results))
		}
		// What two containers with equal ceilings send where nobody keeps these. Of
		// TCP without control one alone may be below its ceiling.
		const ceiling = 10e6
		var unkept []float64
		for _, result := range report.Results {
			name := result.Group + ": " + result.Case + ", " + result.Peer
			if result.Failure != "" {
				errorf("%s failed: %s", name, result.Failure)
			}
			if result.LinkUse != nil && result.Group == "figure 7" {
				// The peers' buckets hold a millisecond: what a processor could not
				// send for longer is lost to them.
				stolen := result.CPUStolen.Max * float64(runtime.NumCPU())
				if use := result.LinkUse.Median; use > 1.02 || use < 0.98-stolen {
					errorf("%s: link use %.3f, want 1; %.3f of a processor stolen", name, use, stolen)
				}
			}
			for _, share := range result.Shares {
				t.Logf("%s, %s: %.2f Mbit/s, ideal %.2f, error %+.2f %%", name, share.Container,
					share.Measured.Median/1e6, float64(share.IdealBPS)/1e6, share.Error*100)
				if result.Peer == PeerHTB && share.MaxBPS > 0 && share.Measured.Median > 1.02*float64(share.MaxBPS) {
					errorf("%s: container %s exceeds its ceiling", name, share.Container)
				}
				if result.Peer == PeerNone && share.MaxBPS == ceiling {
					unkept = append(unkept, share.Measured.Median)
				}
			}
			if latency := result.Latency; latency != nil {
				t.Logf("%s: %+v", name, *latency)
				if latency.Sent < 100 || latency.Lost > 0 || latency.P50MS.Median > 5 {
					errorf("%s: %+v on an idle link", name, *latency)
				}
			}
		}
		if len(unkept) != 2 || unkept[0]+unkept[1] < 1.5*2*ceiling {
			errorf("%.0f bit/s of those with ceilings of %.0f that nobody sets", unkept, float64(ceiling))
		}
	})
}

// TestCNTCInEveryMode runs two containers with 80 and 20 % in every mode. tc
// tells containers apart by address: that works behind its own NAT and with
// macvlan, not in an overlay and not in the host's network. Weir does in all.
func TestCNTCInEveryMode(t *testing.T) {
	t.Parallel()
	options := Options{
		Suite:      "cntc",
		RateBPS:    100e6,
		Peers:      []string{PeerTC, PeerWeir},
		Only:       regexp.MustCompile(`: 80 to 20$`),
		Overload:   1.5,
		Containers: 1,
		RunOptions: measure.RunOptions{Duration: 2 * time.Second, Warmup: 500 * time.Millisecond, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	}
	runAndCheck(t, options, func(report Report, errorf func(string, ...any)) {
		if len(report.Results) != 2*len(cntcModes) {
			t.Fatalf("%d results, want 2 peers in %d modes", len(report.Results), len(cntcModes))
		}
		for _, result := range report.Results {
			if result.Failure != "" {
				errorf("%s, %s failed: %s", result.id(), result.Peer, result.Failure)
				continue
			}
			small := result.Shares[1]
			byAddress := result.Mode == "bridge" || result.Mode == "macvlan"
			told := result.Peer == PeerWeir || byAddress
			t.Logf("%s, %s: %.2f of 20 Mbit/s", result.id(), result.Peer, small.Measured.Median/1e6)
			switch {
			case told && math.Abs(small.Error) > 0.05:
				errorf("%s, %s: error %+.1f %%", result.id(), result.Peer, small.Error*100)
			case !told && small.Error < 0.5:
				errorf("%s, %s: error %+.1f %%, but nothing tells the containers apart", result.id(), result.Peer, small.Error*100)
			}
		}
	})
}

// TestAgentSuiteMeasuresTheAgent: an agent takes a few megabytes, some time to
// start and some CPU time, and less than everything.
func TestAgentSuiteMeasuresTheAgent(t *testing.T) {
	report, err := Run(t.Context(), Options{
		Suite:      "agent",
		RateBPS:    100e6,
		Only:       regexp.MustCompile(`^3 containers at 100mbit: (idle|all send)$|^looked at: .*: 4 pages$`),
		Overload:   1.5,
		Containers: 3,
		Readers:    4,
		RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) != 3 || report.Failed() > 0 {
		t.Fatalf("%d results, %d failed: %+v", len(report.Results), report.Failed(), report.Results)
	}
	for _, result := range report.Results {
		a := result.Agent
		t.Logf("%s: %+v", result.id(), *a)
		if cpu := a.CPUOfCore.Median; cpu <= 0 || cpu > 0.5 {
			t.Errorf("%s: %v of a core", result.id(), cpu)
		}
		if mb := a.ResidentBytes.Median / 1e6; mb < 5 || mb > 200 {
			t.Errorf("%s: %v MB", result.id(), mb)
		}
		if p99 := a.TurnP99MS.Median; p99 < 10 || p99 > 2000 {
			t.Errorf("%s: 99 of 100 turns of the control loop within %v ms", result.id(), p99)
		}
		if start := a.StartMS.Median; start <= 0 || start > measure.Milliseconds(agentStartTimeout) {
			t.Errorf("%s: started in %v ms", result.id(), start)
		}
	}
}

// TestInSuiteMeasuresDownloads: a maximum holds for what a container downloads over a bottleneck and a
// round trip, and without control the bottleneck is full.
func TestInSuiteMeasuresDownloads(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no delay line can be made here: %v", err)
	}
	options := Options{
		Suite:      "in",
		RateBPS:    50e6,
		Peers:      []string{PeerNone, PeerWeir},
		Only:       regexp.MustCompile(`^a maximum: cubic`),
		Overload:   1.5,
		Containers: 1,
		RunOptions: measure.RunOptions{Duration: time.Second, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	}
	runAndCheck(t, options, func(report Report, errorf func(string, ...any)) {
		if len(report.Results) != 2 {
			errorf("%d results, want those of none and weir", len(report.Results))
		}
		for _, result := range report.Results {
			if result.Failure != "" {
				errorf("%s failed: %s", result.Peer, result.Failure)
				continue
			}
			in, got := result.Incoming, result.Shares[0].Measured.Median
			t.Logf("%s: %.2f Mbit/s; at first %+.3f of the maximum", result.Peer, got/1e6, in.FirstSecondOver.Max)
			const maximum = 10e6
			switch result.Peer {
			case PeerWeir:
				if got > 1.05*maximum || got < 0.5*maximum || in.FirstSecondOver.Max > 0.1 {
					errorf("weir: %.2f Mbit/s, %+.3f at first", got/1e6, in.FirstSecondOver.Max)
				}
			case PeerNone:
				if got < 2*maximum || in.ArrivesMost.Max < 0.4 {
					errorf("without control: %.2f Mbit/s, %.3f of the rate arrives", got/1e6, in.ArrivesMost.Max)
				}
			}
		}
	})
}

// TestDownloadOutlivesNAT: a server that sends a minute after the connection reaches the container, though NAT forgets a UDP
// flow without an answer after half a minute.
func TestDownloadOutlivesNAT(t *testing.T) {
	t.Parallel()
	bed, err := NewBed(t.Context(), Options{}, 1)
	must.Succeed(t, err)
	defer func() { must.Succeed(t, bed.Close()) }()
	c := Case{Incoming: true, LinkBPS: 100e6, Containers: []Container{{Name: "C1", Load: Load{Protocol: traffic.UDP}}}}
	containers, remove, err := bed.Place(t.Context(), c)
	must.Succeed(t, err)
	defer func() { must.Succeed(t, remove()) }()
	const forgets = 3 * time.Second
	must.Succeed(t, bed.OnHost(t.Context(), "sysctl", "-q", "-w", fmt.Sprintf("net.netfilter.nf_conntrack_udp_timeout=%.0f", forgets.Seconds())))
	d, err := bed.newDownloads(c, containers, timing{binWidth: time.Millisecond, bins: 1})
	must.Succeed(t, err)
	defer func() { must.Succeed(t, d.close()) }()
	sender, err := d.newSender(t.Context(), 0, 1)
	must.Succeed(t, err)
	defer sender.Stop()
	time.Sleep(2 * forgets)
	sender.Start(traffic.MonotonicNS())
	harness.Await(t, "the container receives", 5*time.Second, func() error {
		s, err := d.Snapshot()
		if err == nil && s.Slots[0].Bytes == 0 {
			err = errors.New("it has nothing")
		}
		return err
	})
}

// TestSuiteGoesOnAfterAnError: a case whose path cannot be set up fails, and later cases are measured.
func TestSuiteGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no delay line can be made here: %v", err)
	}
	options := Options{Overload: 1.5, RunOptions: measure.RunOptions{Duration: 200 * time.Millisecond, WeirBinary: harness.Program(t), Progress: io.Discard}}
	bed, err := NewBed(t.Context(), options, 1)
	must.Succeed(t, err)
	defer func() { must.Succeed(t, bed.Close()) }()
	r := &runner{options: options, bed: bed, progress: &progress{options: options}, peers: []namedPeer{{PeerNone, fifo{}}}}
	r.Recorder, err = NewRecorder[runKey, observation](t.Context(), options.RunOptions)
	must.Succeed(t, err)
	defer r.Close(&report.Report{})
	containers := []Container{{Name: "C1", Load: Load{Protocol: traffic.TCP}}}
	impossible := Case{Name: "no rate", LinkBPS: 10e6, Incoming: true, Containers: containers, Path: &Path{}}
	possible := Case{Name: "a rate", LinkBPS: 10e6, Containers: containers}
	for _, c := range []Case{impossible, possible} {
		must.Succeed(t, r.runCase(t.Context(), c, r.peers, 0))
	}
	failed, measured := r.Of(runKey{impossible.ID(), PeerNone}), r.Of(runKey{possible.ID(), PeerNone})
	if failed.Failure == nil || measured.Failure != nil || len(measured.Seen) != 1 {
		t.Errorf("%+v, %+v", failed, measured)
	}
}

// TestPeersByIFB: with CAKE two containers download the same however many flows each has; with fq_codel each flow
// gets the same. Either uses the rate and keeps to it.
func TestPeersByIFB(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skipf("no delay line can be made here: %v", err)
	}
	const rateBPS = 20e6
	options := Options{
		Suite:      "in",
		RateBPS:    rateBPS,
		Peers:      []string{PeerIFB, PeerCAKE},
		Only:       regexp.MustCompile(`^1 flow against 16: cubic`),
		Overload:   1.5,
		Containers: 1,
		RunOptions: measure.RunOptions{Duration: 2 * time.Second, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	}
	runAndCheck(t, options, func(report Report, errorf func(string, ...any)) {
		skipLacking(t, report.Skipped)
		if len(report.Results) != 2 {
			errorf("%d results, want those of two peers", len(report.Results))
		}
		for _, result := range report.Results {
			if result.Failure != "" {
				errorf("%s failed: %s", result.Peer, result.Failure)
				continue
			}
			one, many := result.Shares[0].Measured.Median, result.Shares[1].Measured.Median
			t.Logf("%s: %.2f and %.2f Mbit/s", result.Peer, one/1e6, many/1e6)
			least, most := 0.35, 0.65
			if result.Peer == PeerIFB {
				least, most = 0.01, 0.25
			}
			if part := one / (one + many); part < least || part > most {
				errorf("%s: one flow beside 16 gets %.2f of both, want %.2f to %.2f", result.Peer, part, least, most)
			}
			if used := (one + many) / rateBPS; used < 0.7 || used > 1.05 {
				errorf("%s: %.2f of the rate is received", result.Peer, used)
			}
		}
	})
}

// TestPeersByClasses: DRR and HFSC keep weights of senders that fill their queues, and a sparse flow does not wait
// behind others' queues, as it does without classes; with HFSC's curve for a latency neither.
func TestPeersByClasses(t *testing.T) {
	t.Parallel()
	options := Options{
		Suite:      SuiteQCon,
		RateBPS:    20e6,
		Peers:      []string{PeerNone, PeerDRR, PeerHFSC},
		Only:       regexp.MustCompile(`^figure 3: |^table 1: beside`),
		Overload:   1.5,
		Containers: 1,
		RunOptions: measure.RunOptions{Duration: 2 * time.Second, Warmup: time.Second, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	}
	runAndCheck(t, options, func(report Report, errorf func(string, ...any)) { checkClasses(t, report, 9, errorf) })
	options.Suite, options.Only = SuiteCNTC, regexp.MustCompile(`^figures 1b and 7b, bridge: CN1 has 16`)
	runAndCheck(t, options, func(report Report, errorf func(string, ...any)) { checkClasses(t, report, 2, errorf) })
}

// skipLacking skips a test whose peers need what this kernel lacks. A peer that was left out for another reason fails it.
func skipLacking(t *testing.T, skipped map[string]string) {
	t.Helper()
	for name, why := range skipped {
		_, err := NewPeer(t.Context(), name, Options{})
		if lacks := (*lacksError)(nil); !errors.As(err, &lacks) {
			t.Fatalf("%s was left out: %s", name, why)
		}
		t.Skipf("%s: %s", name, why)
	}
}

// checkClasses checks the results of peers with a class for each container beside those of none.
func checkClasses(t *testing.T, report Report, results int, errorf func(string, ...any)) {
	t.Helper()
	skipLacking(t, report.Skipped)
	if len(report.Results) != results {
		errorf("%d results, want %d", len(report.Results), results)
	}
	waited := math.NaN()
	for _, result := range report.Results {
		name := result.id() + ", " + result.Peer
		if result.Failure != "" {
			errorf("%s failed: %s", name, result.Failure)
			continue
		}
		for _, share := range result.Shares {
			t.Logf("%s, %s: %.2f Mbit/s, ideal %.2f", name, share.Container, share.Measured.Median/1e6, float64(share.IdealBPS)/1e6)
			if weighted := result.Group == qconFigure3 && result.Peer != PeerNone; weighted && math.Abs(share.Error) > 0.1 {
				errorf("%s, %s: error %+.1f %%", name, share.Container, share.Error*100)
			}
		}
		if result.Latency == nil {
			continue
		}
		p50, p99 := result.Latency.P50MS.Median, result.Latency.P99MS.Median
		t.Logf("%s: p50 %.2f ms, p99 %.2f ms", name, p50, p99)
		if result.Peer == PeerNone {
			waited = p50
		} else if !(p99 < waited/4) { // also without a p50 of none
			errorf("%s: 99 of 100 round trips took up to %.2f ms, half of them %.2f ms without classes", name, p99, waited)
		}
	}
}

// TestDirectModesTakeTurns: containers of macvlan and of ipvlan modes reach the neighbour in any order; a kernel without ipvlan lacks
// its modes only.
func TestDirectModesTakeTurns(t *testing.T) {
	b, err := NewBed(t.Context(), Options{}, 1)
	must.Succeed(t, err)
	t.Cleanup(func() { must.Succeed(t, b.Close()) })
	modes := []testbed.Mode{testbed.ModeMacvlan, testbed.ModeIPvlanL2, testbed.ModeIPvlanL3, testbed.ModeMacvlanPrivate, testbed.ModeIPvlanL2, testbed.ModeMacvlan}
	containers := []Container{{Name: "C1"}, {Name: "C2"}}
	var cases []Case
	for _, mode := range modes {
		cases = append(cases, Case{Mode: mode, Containers: containers})
	}
	rest, missing, err := b.dropMissingModes(t.Context(), cases)
	if err != nil || len(rest) != 6-3*len(missing)/2 {
		t.Fatalf("%v: %d cases, without %v", err, len(rest), missing)
	}
	for i, c := range rest {
		placed, _, err := b.Place(t.Context(), c)
		must.Succeed(t, err)
		for _, one := range placed {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			pinger, err := b.newPinger(one)
			must.Succeed(t, err)
			if found, err := pinger.Run(ctx); err != nil || len(found.RTTs) == 0 || found.Lost > found.Sent/2 {
				t.Errorf("turn %d, %s: %d of %d pings answered, %v", i+1, c.Mode, len(found.RTTs), found.Sent, err)
			}
		}
	}
	if len(missing) > 0 {
		t.Logf("this kernel lacks %v", missing)
	}
}
