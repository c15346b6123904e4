// Package qos decides which queues a port of a switch has, as rows of Open
// vSwitch's database: the paper's queue_mod (SDN-LLQ, section III.A.3).
//
// Problem: Open vSwitch has the kernel's HTB make the queues of a port
// (linux-htb: ovs-vswitchd.conf.db(5), tables QoS and Queue), and HTB takes any
// numbers, fitting or not. Method: queues, three or as an operator's map has them,
// whose minimums are no more than the port's rate together, so that a guarantee never depends on what others leave: HTB serves
// a class within its rate before any class that borrows. EF has the part that it
// may claim, AF its minimum, BE the rest; what one leaves idle the next takes in
// the order EF, AF, BE, or of their priorities.
//
// Limits: HTB cannot have EF beyond its part compete as BE, as design 3.6 has it;
// it competes as EF for what is idle, never for what AF and BE are guaranteed.
package qos

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Types of QoS.
const (
	// TypeHTB: Open vSwitch makes the queues, as HTB's classes.
	TypeHTB = "linux-htb"
	// TypeNoop: Open vSwitch makes none and leaves those alone that are there, which
	// Weir makes (internal/sched/htb, Port). The rows say which.
	TypeNoop = "linux-noop"
)

// Owner marks rows as Weir's, in external_ids.
const (
	OwnerKey = "owner"
	Owner    = "weir"
	// BeforeKey names the QoS row that a port had before, to be put back.
	BeforeKey = "weir-before"
	// DeviceKey names the device on which Weir made the queues, and AddressKey has its
	// address, as other hosts have devices of that name. AsideKey is what
	// queueing somebody else had configured on it, to be put back.
	DeviceKey  = "weir-device"
	AddressKey = "weir-device-address"
	AsideKey   = "weir-aside"
)

// IDs are the queues of the levels. Queue 0 is where everything goes that no
// queue is named for, so it is always there: BE.
var IDs = [appid.NumLevels]int{appid.EF: 2, appid.AF: 1, appid.BE: 0}

// Shares are parts of a port's rate.
type Shares struct {
	// EFMax is what EF may claim, AFMin what AF can always have: fractions of the
	// rate, 0 to 1.
	EFMax, AFMin float64
}

// minBE is the least part that is left to BE, and least to any queue.
const minBE = 0.01

// Check says what is wrong with shares.
func (s Shares) Check() error {
	switch {
	case !(s.EFMax >= minBE && s.EFMax <= 1):
		return fmt.Errorf("EF's part is %.4g %% of the rate: want %.4g to 100", 100*s.EFMax, 100*minBE)
	case !(s.AFMin >= minBE && s.AFMin <= 1):
		return fmt.Errorf("AF's minimum is %.4g %% of the rate: want %.4g to 100", 100*s.AFMin, 100*minBE)
	case s.EFMax+s.AFMin > 1-minBE+1e-9:
		return fmt.Errorf("EF's part and AF's minimum are %.4g %% of the rate together: at most %.4g, so that something is left for BE",
			100*(s.EFMax+s.AFMin), 100*(1-minBE))
	}
	return nil
}

// Queue is one queue. Rates are bits per second.
type Queue struct {
	ID             int
	MinBPS, MaxBPS uint64
	Priority       int // the lowest borrows first
}

// minQueueBPS is the least rate of a queue: HTB cannot keep time with less.
const minQueueBPS = 12000

// minRateBPS is the least rate of a port.
const minRateBPS = 1000000

// Config is the row's other_config.
func (q Queue) Config() map[string]string {
	return map[string]string{
		"min-rate": strconv.FormatUint(q.MinBPS, 10), "max-rate": strconv.FormatUint(q.MaxBPS, 10), "priority": strconv.Itoa(q.Priority),
	}
}

// Port is a port as the database has it.
type Port struct {
	Name         string
	Kind         string // the interface's type; "patch" and tunnels have no queue
	LinkSpeedBPS uint64 // 0: not known
	QoS          *Row   // nil: none
}

// Row is the QoS row of a port with its queues.
type Row struct {
	UUID     string
	Type     string
	Config   map[string]string
	External map[string]string
	Queues   map[int]QueueRow
}

// QueueRow is one row of the table Queue.
type QueueRow struct {
	UUID   string
	Config map[string]string
}

// Ours tells whether Weir made a row.
func (r *Row) Ours() bool { return r != nil && r.External[OwnerKey] == Owner }

// PortState is what is known of the queues that a port was given.
type PortState struct {
	RateBPS uint64
	State   string // ok, degraded, refused, waiting or unknown
	Reason  string
	Queues  map[openflow.Queue]Rates
	// Counters are what the kernel counted of queues that Open vSwitch does not know;
	// nil where it counts them.
	Counters map[openflow.Queue]Counters
}

// Counters are what a queue has done since it was made.
type Counters struct {
	SentBytes, SentPackets, DroppedPackets uint64
	RateBPS                                float64 // between the last two looks
}

// Rates are the bounds of a queue.
type Rates struct{ MinBPS, MaxBPS uint64 }

// Action is what is to be done with a port.
type Action int

// Actions.
const (
	Keep   Action = iota // it is as it should be
	Create               // new rows; what was there before is put aside
	Update               // the rows are there, with other numbers
	Refuse               // Reason says why
)

// Change is a decision.
type Change struct {
	Action Action
	Reason string
	// Type is that of the QoS row.
	Type string
	// RateBPS is the port's rate: what was asked for, or the link's speed.
	RateBPS uint64
	Queues  []Queue
}

// RateConfig is the QoS row's other_config.
func (c *Change) RateConfig() map[string]string {
	return map[string]string{"max-rate": strconv.FormatUint(c.RateBPS, 10)}
}

// Wanted is what a port is to have.
type Wanted struct {
	Type    string // TypeHTB or TypeNoop
	RateBPS uint64 // 0: the link's speed
	Queues  Map
	// Replace takes the place of what somebody else configured.
	Replace bool
}

// Plan decides about a port.
func Plan(p Port, w Wanted) Change {
	rateBPS := w.RateBPS
	refuse := func(format string, args ...any) Change {
		return Change{Action: Refuse, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case p.Kind == "patch":
		return refuse("a patch port has no queue")
	case rateBPS == 0 && p.LinkSpeedBPS == 0:
		return refuse("the link's speed is not known: give it with --rate %s=RATE", p.Name)
	case p.LinkSpeedBPS != 0 && rateBPS > p.LinkSpeedBPS:
		return refuse("a rate of %s is more than the link's %s: what is guaranteed would not fit", mbit(rateBPS), mbit(p.LinkSpeedBPS))
	case p.QoS != nil && !p.QoS.Ours() && !w.Replace:
		return refuse("somebody else configured QoS %s (%s): --replace puts it aside, weir sdn down puts it back", p.QoS.UUID, p.QoS.Type)
	}
	if rateBPS == 0 {
		rateBPS = p.LinkSpeedBPS
	}
	if rateBPS < minRateBPS {
		return refuse("a rate of %s is less than %s", mbit(rateBPS), mbit(minRateBPS))
	}
	queues, err := w.Queues.Of(rateBPS)
	if err != nil {
		return refuse("%v", err)
	}
	c := Change{Type: w.Type, RateBPS: rateBPS, Queues: queues}
	switch {
	case !p.QoS.Ours() || p.QoS.Type != w.Type || !c.has(p.QoS.Queues):
		c.Action = Create
	case !c.asConfigured(p.QoS):
		c.Action = Update
	}
	return c
}

// has tells whether the rows are of the same queues.
func (c *Change) has(rows map[int]QueueRow) bool {
	for _, q := range c.Queues {
		if _, ok := rows[q.ID]; !ok {
			return false
		}
	}
	return len(rows) == len(c.Queues)
}

func (c *Change) asConfigured(r *Row) bool {
	if !maps.Equal(r.Config, c.RateConfig()) {
		return false
	}
	for _, q := range c.Queues {
		if !maps.Equal(r.Queues[q.ID].Config, q.Config()) {
			return false
		}
	}
	return true
}

func mbit(bps uint64) string { return strconv.FormatFloat(float64(bps)/1e6, 'g', 6, 64) + "mbit" }
