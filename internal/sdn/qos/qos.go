// Package qos decides which queues a port of a switch has, as rows of Open
// vSwitch's database: the paper's queue_mod (SDN-LLQ, section III.A.3).
//
// Problem: Open vSwitch has the kernel's HTB make the queues of a port
// (linux-htb: ovs-vswitchd.conf.db(5), tables QoS and Queue), and HTB takes any
// numbers, fitting or not. Method: three queues, or those of an operator's map, whose
// minimums together are at most the port's rate, so that a guarantee never depends on
// others' idleness: HTB serves a class within its rate before any class that borrows. EF
// has its maximum, AF its minimum, BE the rest; an idle part goes to the others in the
// order EF, AF, BE, or of their priorities.
//
// Limits: HTB cannot have EF beyond its part compete as BE; EF competes with its own
// priority for the idle rate, never for the guarantees of AF and BE.
package qos

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// Types of QoS.
const (
	// TypeHTB lets Open vSwitch create the queues as HTB classes.
	TypeHTB = "linux-htb"
	// TypeNoop makes Open vSwitch leave the port's queueing alone; Weir creates the queues
	// itself (internal/datapath/htb, Port). The rows describe them.
	TypeNoop = "linux-noop"
)

// Owner and the keys below mark rows as Weir's, in external_ids.
const (
	OwnerKey = "owner"
	Owner    = "weir"
	// BeforeKey is the UUID of the port's earlier QoS row, to be restored.
	BeforeKey = "weir-before"
	// DeviceKey is the name of the device on which Weir created the queues, AddressKey its
	// MAC address, because other hosts have devices of that name. AsideKey is the earlier
	// queueing of the device, to be restored.
	DeviceKey  = "weir-device"
	AddressKey = "weir-device-address"
	AsideKey   = "weir-aside"
)

// IDs are the queues of the traffic classes. Queue 0 (BE) also takes all traffic without a
// queue, so it always exists.
var IDs = [apps.NumLevels]int{apps.EF: 2, apps.AF: 1, apps.BE: 0}

// Shares divides a port's rate among the three classes.
type Shares struct {
	// EFMax is the maximum of EF and AFMin the minimum of AF, as fractions of the rate.
	EFMax, AFMin float64
}

// minBE is the smallest fraction of the rate for BE, and for any queue.
const minBE = 0.01

// Check returns an error if the shares do not fit.
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

// Queue is one queue; rates are bits per second.
type Queue struct {
	ID             int
	MinBPS, MaxBPS uint64
	Priority       int // the lowest borrows first
}

// minQueueBPS is the smallest rate of a queue, limited by HTB's timer resolution.
const minQueueBPS = 12000

// minRateBPS is the smallest rate of a port.
const minRateBPS = 1000000

// Config returns the other_config column of a Queue row.
func (q Queue) Config() map[string]string {
	return map[string]string{
		"min-rate": strconv.FormatUint(q.MinBPS, 10), "max-rate": strconv.FormatUint(q.MaxBPS, 10), "priority": strconv.Itoa(q.Priority),
	}
}

// Port is a port as described in the database.
type Port struct {
	Name         string
	Kind         string // interface type; patch ports and tunnels have no queues
	LinkSpeedBPS uint64 // 0 if unknown
	QoS          *Row   // nil if the port has none
	Bond         string // of a member, the name of its bond
}

// Row is a port's QoS row with its queues.
type Row struct {
	UUID     string
	Type     string
	Config   map[string]string
	External map[string]string
	Queues   map[int]QueueRow
}

// QueueRow is a row of the table Queue.
type QueueRow struct {
	UUID   string
	Config map[string]string
}

// Patch reports whether a port leads to another bridge of the same switch: it has no link.
func (p *Port) Patch() bool { return p.Kind == "patch" }

// Device reports whether packets that leave by a port wait at a device of the host: not those to other
// bridges, through tunnels or to the host itself.
func (p *Port) Device() bool { return p.Kind == "" || p.Kind == "system" }

// Ours reports whether a row was created by Weir.
func (r *Row) Ours() bool { return r != nil && r.External[OwnerKey] == Owner }

// PortState is the state of a port's queues.
type PortState struct {
	RateBPS uint64
	State   string // ok, degraded, refused, waiting or unknown; empty for a patch port
	Reason  string
	Queues  map[openflow.Queue]Rates
	// PromisableBPS is how much the minimums of promises may be together.
	PromisableBPS uint64
	// Counters are read from the kernel for TypeNoop; nil if Open vSwitch counts the
	// queues.
	Counters map[openflow.Queue]Counters
}

// Counters are counts since the creation of a queue.
type Counters struct {
	SentBytes, SentPackets, DroppedPackets uint64
	RateBPS                                float64 // mean between the last two readings
}

// Rates are the minimum and maximum of a queue.
type Rates struct{ MinBPS, MaxBPS uint64 }

// Action is what to do with a port's QoS rows.
type Action int

// Actions.
const (
	Keep   Action = iota // nothing to change
	Create               // new rows; earlier ones are put aside
	Update               // same rows, other rates
	Refuse               // Reason says why
)

// Change is the decision for a port.
type Change struct {
	Action Action
	Reason string
	// Type is the type of the QoS row.
	Type string
	// RateBPS is the port's rate: the configured one, or the link's speed.
	RateBPS uint64
	Queues  []Queue
	// PromisableBPS is how much the minimums of promises may be together.
	PromisableBPS uint64
}

// RateConfig returns the other_config column of the QoS row.
func (c *Change) RateConfig() map[string]string {
	return map[string]string{"max-rate": strconv.FormatUint(c.RateBPS, 10)}
}

// Wanted is the desired configuration of a port.
type Wanted struct {
	Type    string // TypeHTB or TypeNoop
	RateBPS uint64 // 0 means the link's speed
	Queues  Map
	// Replace allows to replace another program's QoS row.
	Replace bool
	// Promised are queues beside those of the map, whose minimums queue 0 gives.
	Promised []Queue
}

// Plan compares a port with its desired state and returns the change.
func Plan(p Port, w Wanted) Change {
	rateBPS := w.RateBPS
	refuse := func(format string, args ...any) Change {
		return Change{Action: Refuse, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case p.Patch():
		return refuse("a patch port has no queue")
	case p.Bond != "": // each member would need queues, and the database has them of the bond
		return refuse("a bond gets no queues: the port is a member of %s", p.Bond)
	case rateBPS == 0 && p.LinkSpeedBPS == 0:
		return refuse("the link's speed is not known: give it with --rate %s=RATE", p.Name)
	case p.LinkSpeedBPS != 0 && rateBPS > p.LinkSpeedBPS:
		return refuse("a rate of %s is more than the link's %s: what is guaranteed would not fit", mbit(rateBPS), mbit(p.LinkSpeedBPS))
	case p.QoS != nil && !p.QoS.Ours() && !w.Replace:
		return refuse("another program configured QoS %s (%s): --replace puts it aside, weir sdn down puts it back", p.QoS.UUID, p.QoS.Type)
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
	c := Change{Type: w.Type, RateBPS: rateBPS, Queues: queues, PromisableBPS: w.Queues.promisable(rateBPS, queues)}
	c.promise(w.Promised)
	switch {
	case !p.QoS.Ours() || p.QoS.Type != w.Type || !c.has(p.QoS.Queues):
		c.Action = Create
	case !c.asConfigured(p.QoS):
		c.Action = Update
	}
	return c
}

// promise adds queues of promises, which borrow as queue 0 does, and takes their minimums from it.
func (c *Change) promise(promised []Queue) {
	rest := slices.IndexFunc(c.Queues, func(q Queue) bool { return q.ID == 0 })
	for _, q := range promised {
		q.MaxBPS, q.Priority = c.RateBPS, c.Queues[rest].Priority
		c.Queues[rest].MinBPS -= min(q.MinBPS, c.Queues[rest].MinBPS-minQueueBPS)
		c.Queues = append(c.Queues, q)
	}
}

// Promised returns the queues of promises that a row has.
func (r *Row) Promised() (list []Queue) {
	for _, id := range slices.Sorted(maps.Keys(r.Queues)) {
		least, err := strconv.ParseUint(r.Queues[id].Config["min-rate"], 10, 64)
		if err == nil && id >= MaxQueues {
			list = append(list, Queue{ID: id, MinBPS: least})
		}
	}
	return list
}

// has reports whether existing rows match the queues.
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
