package traffic

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/model"
)

// portOptions are the paper's port.
func portOptions() PortOptions {
	return PortOptions{
		Target: netip.MustParseAddrPort("198.18.0.1:5000"), ArrivalPPS: [3]float64{4162.5, 4162.5, 4162.5}, MeanBytes: 1000,
		ServiceBPS: [3]float64{100e6, 40e6, 60e6}, Places: [3]int{5, 5, 5}, PollPerSecond: 100, Seed: 1, Duration: time.Second,
	}
}

// TestPortQueues: driven by the clock of a simulation, the queues do what the model
// says, so that what a live run finds otherwise is the machine's.
func TestPortQueues(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*PortOptions)
	}{
		{"the paper's", func(*PortOptions) {}},
		{"AF at 60 Mbit/s", func(o *PortOptions) { o.ServiceBPS = [3]float64{100e6, 60e6, 40e6} }},
		{"short turns", func(o *PortOptions) { o.PollPerSecond = 2000 }},
		{"light load", func(o *PortOptions) { o.ArrivalPPS = [3]float64{2000, 1500, 500} }},
	} {
		o := portOptions()
		test.edit(&o)
		const seconds = 60
		q := newPortQueues(o, 0)
		random := rand.New(rand.NewPCG(5, 5))
		sum := o.ArrivalPPS[0] + o.ArrivalPPS[1] + o.ArrivalPPS[2]
		at, bytes, count := 0.0, 0.0, 0.0
		var arrived [3]float64
		for at < seconds*1e9 {
			at += random.ExpFloat64() * 1e9 / sum
			q.advance(int64(at), func(departure) {})
			queue, size := o.pick(random, sum)
			q.arrive(queue, portPacket{arrivedNS: int64(at), bytes: size})
			arrived[queue]++
			bytes += float64(size)
			count++
		}
		port := model.Port{Places: o.Places, PollPerSecond: o.PollPerSecond, AfterEF: model.Resume, Switch: model.AtPacketEnd, Empty: model.Lend}
		for i := range arrived {
			port.ArrivalPPS[i] = arrived[i] / seconds
			port.ServicePPS[i] = o.ServiceBPS[i] / (8 * bytes / count)
		}
		want, err := model.Solve(t.Context(), port)
		if err != nil {
			t.Fatal(err)
		}
		for i, queue := range want.Queues {
			throughput, wait := float64(q.sent[i])/seconds, float64(q.waitNS[i])/float64(q.sent[i])/1e9
			if math.Abs(throughput/queue.ThroughputPPS-1) > 0.02 || math.Abs(wait/queue.WaitSeconds-1) > 0.05 {
				t.Errorf("%s, queue %d: %.1f packets/s wait %.4g ms; the model has %.1f and %.4g", test.name, i, throughput, wait*1e3,
					queue.ThroughputPPS, queue.WaitSeconds*1e3)
			}
			if loss := float64(q.lost[i]) / arrived[i]; math.Abs(loss-queue.Loss) > 0.01 {
				t.Errorf("%s, queue %d loses %.4f, the model %.4f", test.name, i, loss, queue.Loss)
			}
		}
	}
}

// TestPortQueuesLate: a caller that looks only now and then gets the same.
func TestPortQueuesLate(t *testing.T) {
	o := portOptions()
	departures := func(every int64) (list []departure) {
		q, random := newPortQueues(o, 0), rand.New(rand.NewPCG(5, 5))
		for at, next := int64(0), int64(0); at < 1e9; {
			at += int64(random.ExpFloat64() * 80e3)
			for ; next < at; next += every {
				q.advance(next, func(d departure) { list = append(list, d) })
			}
			q.advance(at, func(d departure) { list = append(list, d) })
			queue, size := o.pick(random, 3*4162.5)
			q.arrive(queue, portPacket{arrivedNS: at, bytes: size})
		}
		return list
	}
	often, seldom := departures(1000), departures(50e6)
	if len(often) != len(seldom) || len(often) < 5000 {
		t.Fatalf("%d departures, seen late %d", len(often), len(seldom))
	}
	for i := range often {
		if often[i] != seldom[i] {
			t.Fatalf("departure %d is %+v, seen late %+v", i, often[i], seldom[i])
		}
	}
}

func TestPortRefuses(t *testing.T) {
	for _, test := range []struct {
		edit func(*PortOptions)
		want string
	}{
		{func(o *PortOptions) { o.Target = netip.MustParseAddrPort("[::1]:5") }, "has no IPv4 address"},
		{func(o *PortOptions) { o.MeanBytes = 100 }, "packets of 100 bytes: choose 236 to 8571"},
		{func(o *PortOptions) { o.MeanBytes = 9000 }, "packets of 9000 bytes"},
		{func(o *PortOptions) { o.ArrivalPPS = [3]float64{} }, "nothing arrives"},
		{func(o *PortOptions) { o.ArrivalPPS[1] = -1 }, "queue 1 has -1 packets a second"},
		{func(o *PortOptions) { o.ServiceBPS[2] = 0 }, "queue 2 has"},
		{func(o *PortOptions) { o.Places[0] = 0 }, "and 0 places"},
		{func(o *PortOptions) { o.PollPerSecond = 0 }, "must be positive"},
		{func(o *PortOptions) { o.Duration = 0 }, "must be positive"},
		{func(o *PortOptions) { o.Direct = []int{1} }, "1 priorities for 3 queues"},
	} {
		o := portOptions()
		test.edit(&o)
		if _, err := RunPort(t.Context(), o); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want one with %q", err, test.want)
		}
	}
}
