//go:build netns

package netns

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// bulk is what a container sends beside its voice: connections to one port.
type bulk struct {
	protocol    traffic.Protocol
	connections int
	port        uint16
	// payloadBytes is the size of UDP's datagrams.
	payloadBytes int
}

func (b bulk) String() string {
	return fmt.Sprintf("%d %s to port %d, datagrams of %d", b.connections, b.protocol, b.port, b.payloadBytes)
}

// drawBulk draws the load number n. Any six in a row have 1, 12 and 50 connections or flows of TCP and
// of UDP, any twelve each of them to a port that the classifier is certain of and to any other.
func drawBulk(r *rand.Rand, n uint64) bulk {
	load := bulk{[]traffic.Protocol{traffic.TCP, traffic.UDP}[n%2], []int{12, 50, 1}[n%3], uint16(1025 + 2*r.IntN(32000)), 1000 + r.IntN(473)}
	if load.port >= harness.BasePort && load.port < harness.BasePort+harness.Slots { // the bed's own
		load.port += harness.Slots
	}
	if n%4 < 2 {
		load.port = []uint16{3306, 5060, 5222, 5432, 25565}[r.IntN(5)]
	}
	return load
}

// kind is what the table of waits tells loads apart by.
type kind struct {
	connections int
	protocol    traffic.Protocol
}

// TestDrawnBulk: the few draws of the gate have every kind of bulk, wherever they begin.
func TestDrawnBulk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for begin := range uint64(12) {
		kinds := map[kind]bool{}
		for n := range uint64(gateDraws) {
			load := drawBulk(r, begin+n)
			kinds[kind{load.connections, load.protocol}] = true
		}
		if len(kinds) != 6 {
			t.Errorf("%d draws from number %d have %d kinds of bulk, want 6: %v", gateDraws, begin, len(kinds), kinds)
		}
	}
}

// gateDraws are as many as it takes for each kind of bulk.
const gateDraws = 6

// setting returns the number in a variable of the environment, or another one where it is not set.
func setting(t *testing.T, name string, unset uint64) uint64 {
	t.Helper()
	if text := os.Getenv(name); text != "" {
		return number(t, text)
	}
	return unset
}

// TestVoiceBesideBulk: voice of a container whose class is auto does not wait for the bulk of
// the same container, whatever its ports and its protocol are. WEIR_VOICE_DRAWS is the number
// of loads that are drawn, WEIR_SEED says which.
func TestVoiceBesideBulk(t *testing.T) {
	const settle, measured, most = 2 * time.Second, 4 * time.Second, 5 * time.Millisecond
	draws, seed := setting(t, "WEIR_VOICE_DRAWS", gateDraws), setting(t, "WEIR_SEED", rand.Uint64())
	t.Logf("WEIR_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	waits := map[kind][][2]time.Duration{} // p50 and p99 of each draw
	b := newBed(t)
	mixed := b.Add("mixed", labels("class", "auto"))
	plain := b.Add("plain", nil)
	b.StartAgent(harness.AgentOptions{Rate: "20mbit"})
	b.Send(plain, harness.Load{Protocol: traffic.TCP, Connections: 4})
	b.WarmUp()
	for i := range draws {
		load := drawBulk(r, seed%12+i)
		t.Run(load.String(), func(t *testing.T) {
			voice := &application{port: uint16(16384 + 2*r.IntN(8192)), payloadBytes: 172, bps: 8 * 50 * float64(traffic.WireBytesUDP(mixed.PeerAddr, 172))}
			receiver := timedApplications(t, b, mixed, []*application{voice})
			sendBulk(t, b, mixed, load)
			time.Sleep(settle)
			_, _ = receiver.Take()
			time.Sleep(measured)
			arrived, overruns := receiver.Take()
			var flows []v1.Flow
			must.Succeed(t, json.Unmarshal([]byte(b.MustWeir("flows", "-o", "json", "--limit", "0")), &flows))
			var delays []time.Duration
			for _, a := range arrived[0] {
				delays = append(delays, a.Delay())
			}
			slices.Sort(delays)
			if overruns > 0 {
				harness.SkipBusy(t, fmt.Sprintf("the receiver lost %d datagrams itself", overruns))
			}
			if least := int(measured/(20*time.Millisecond)) * 9 / 10; len(delays) < least {
				t.Fatalf("%d datagrams of voice arrived, want at least %d", len(delays), least)
			}
			at := func(part int) time.Duration { return delays[(len(delays)-1)*part/100] }
			t.Logf("voice waits %v, %v (p99), %v", at(50), at(99), at(100))
			of := kind{load.connections, load.protocol}
			waits[of] = append(waits[of], [2]time.Duration{at(50), at(99)})
			if at(99) > most {
				t.Errorf("voice waits %v at p99, want at most %v", at(99), most)
			}
			for _, f := range flows {
				if strings.HasSuffix(f.Responder, fmt.Sprintf(":%d", voice.port)) && (f.Class != v1.ClassEF || f.Why != "") {
					t.Errorf("voice is %+v", f)
				}
			}
		})
	}
	for of, each := range waits {
		t.Logf("%d %s: %d draws, p50 and p99 %v", of.connections, of.protocol, len(each), each)
	}
}

// sendBulk sends a load to the neighbour until the test ends.
func sendBulk(t *testing.T, b *harness.Bed, c *harness.Container, load bulk) {
	t.Helper()
	var sink *traffic.Sink
	must.Succeed(t, testbed.InNetNS(b.Host.PeerNetNSPath(), func() (err error) {
		sink, err = traffic.NewSink(load.port, 1)
		return err
	}))
	t.Cleanup(func() { must.Succeed(t, sink.Close()) })
	options := traffic.SenderOptions{Target: netip.AddrPortFrom(c.PeerAddr, load.port), Protocol: load.protocol, Connections: load.connections, PayloadBytes: load.payloadBytes}
	senders := 1
	if load.protocol == traffic.UDP {
		senders, options.RateBPS = load.connections, 40*mbit/uint64(load.connections)
	}
	for range senders {
		var sender *traffic.Sender
		must.Succeed(t, c.Enter(func() (err error) {
			sender, err = traffic.NewSender(t.Context(), options)
			return err
		}))
		t.Cleanup(sender.Stop)
		sender.Start(0)
	}
}
