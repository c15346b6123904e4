//go:build netns

package netmodes

import (
	"encoding/json"
	"io"
	"math"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/lab/bench"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
)

// TestNetmodesAgainstIPerf: on a link that both fill, the payload that the suite
// counts is what iperf3's receiver does.
func TestNetmodesAgainstIPerf(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("iperf3 is not installed")
	}
	const linkBPS, tolerance = 20e6, 0.04
	ours, err := Run(t.Context(), Options{
		Modes: []string{Native}, Protocols: []traffic.Protocol{traffic.TCP}, MessageBytes: []int{1024},
		Containers: 1, LinksBPS: []uint64{linkBPS}, Agent: []bool{false},
		RunOptions: measure.RunOptions{Duration: time.Second, Warmup: time.Second, Repeat: 1, WeirBinary: harness.Program(t), Progress: io.Discard},
	})
	if err != nil || ours.Failed() > 0 {
		t.Fatal(err, ours.Results)
	}
	stream, iperf := ours.Results[0].RateBPS.Median, iperfRate(t, linkBPS)
	t.Logf("stream %.2f Mbit/s, iperf3 %.2f Mbit/s", stream/1e6, iperf/1e6)
	if off := stream/iperf - 1; math.Abs(off) > tolerance {
		t.Errorf("the suite counts %+.1f %% of what iperf3 does", off*100)
	}
}

// iperfRate is what iperf3 counts at the receiver of a link.
func iperfRate(t *testing.T, linkBPS uint64) float64 {
	t.Helper()
	b, err := bench.NewBed(t.Context(), bench.Options{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	link, err := bench.NewPeer(t.Context(), bench.PeerNone, bench.Options{})
	if err == nil {
		err = link.Apply(t.Context(), b, bench.Case{LinkBPS: linkBPS}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	const port = "5301" // the bed's sink has those from 5201 on
	server := b.Host.PeerCommand(t.Context(), "iperf3", "-s", "-1", "-p", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Signal(unix.SIGTERM); _ = server.Wait() }()
	var out []byte
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		// Omitted: the second in which the queue fills.
		out, err = b.Host.Command(t.Context(), "iperf3", "-c", b.Host.PeerAddr.String(), "-p", port, "-J", "-l", "1024", "-t", "2", "-O", "1").Output()
		if err == nil {
			break
		}
	}
	if err != nil {
		t.Fatalf("run iperf3: %v: %s", err, out)
	}
	var report struct {
		End struct {
			Received struct {
				BPS float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	return report.End.Received.BPS
}
