package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-project/weir/internal/lab/traffic"
	"github.com/weir-project/weir/internal/share/policy"
)

// accuracyRates are the links of the suite, in bits per second. UDP senders
// are left out where this kind of machine cannot generate enough of it.
var accuracyRates = []struct {
	linkBPS uint64
	udp     bool
	many    bool
}{
	{linkBPS: 10e6, udp: true},
	{linkBPS: 100e6, udp: true, many: true},
	{linkBPS: 1e9, udp: true, many: true},
	{linkBPS: 5e9},
}

const (
	manyContainers = 100
	maxManyWeight  = 10
)

const accuracyNote = "A share is whole packets: what one packet is of what a container should send is an error that no scheduler " +
	"can avoid. Cases of 100 containers run until that is 0.2 % for Weir's packets and the smallest container, and count after " +
	"3 s, when the last connection has left its start behind. Other peers are handed packets of up to 64 KB."

// accuracySuite measures the error of shares where it is hard to keep small.
func accuracySuite(options Options) []Case {
	var cases []Case
	for _, rate := range accuracyRates {
		group := policy.FormatRate(rate.linkBPS)
		add := func(name string, containers ...Container) {
			cases = append(cases, Case{Group: group, Name: name, LinkBPS: rate.linkBPS, Containers: containers})
		}
		tcp := func(name string, weight uint32, connections int) Container {
			return Container{Name: name, Policy: Policy{Weight: weight}, Load: Load{Protocol: traffic.TCP, Connections: connections}}
		}
		add("weights 1:2:3", tcp("C1", 1, 1), tcp("C2", 2, 1), tcp("C3", 3, 1))
		add("1 connection against 16", tcp("C1", 1, 1), tcp("C2", 1, 16))
		if rate.udp {
			udp := Container{Name: "C2", Policy: Policy{Weight: 1}, Load: Load{Protocol: traffic.UDP}}
			if rate.linkBPS >= 1e9 {
				udp.Load.SegmentsPerSend = gsoSegments
			}
			add("TCP against UDP", tcp("C1", 1, 1), udp)
		}
		if rate.many {
			add(fmt.Sprintf("%d containers, seed %d", manyContainers, options.Seed), randomContainers(manyContainers, options.Seed)...)
			many := &cases[len(cases)-1]
			many.MinDuration = durationForPackets(*many, manyPacketFraction)
			many.MinWarmup = manyWarmup
		}
	}
	return cases
}

// gsoSegments lets one core send UDP beyond a gigabit per second.
const gsoSegments = 16

// manyPacketFraction is what one packet of the smallest of many containers may
// be of all it sends. A packet more or less is no error of a scheduler.
const manyPacketFraction = 0.002

// manyWarmup is for TCP's start over a queue that is long for a small share. Who
// opens its window all at once, after repairing its first losses, loses the end of
// that burst; nothing tells it, and it stands still for a round trip and a fifth of
// a second, 1 to 2 s after the start: one connection in a thousand.
const manyWarmup = 3 * time.Second

// durationForPackets is how long a case must run so that the largest packet
// Weir schedules is at most a fraction of what each container should send.
func durationForPackets(c Case, fraction float64) time.Duration {
	seconds := 0.0
	for _, bps := range c.ideal(0) { // all send, so each gets what it is entitled to
		seconds = max(seconds, packetBytes(PeerWeir, c.LinkBPS, bps)*8/(fraction*float64(bps)))
	}
	return time.Duration(math.Ceil(seconds)) * time.Second
}

// randomContainers have random weights and send all they can.
func randomContainers(count int, seed uint64) []Container {
	random := rand.New(rand.NewPCG(seed, seed))
	var containers []Container
	for i := range count {
		containers = append(containers, Container{
			Name:   fmt.Sprintf("C%d", i+1),
			Policy: Policy{Weight: 1 + random.Uint32N(maxManyWeight)},
			Load:   Load{Protocol: traffic.TCP},
		})
	}
	return containers
}
