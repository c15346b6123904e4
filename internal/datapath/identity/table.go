package identity

import (
	"encoding/binary"
	"errors"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Classifier tells the packets of containers apart. Implementation: *Uplink.
type Classifier interface {
	sched.Traffic
	// Apply applies a table to the classifier.
	Apply(Table) Refusals
	// Forget clears all settings of a number.
	Forget(number uint16) error
	// Carry lets what containers send through devices on top of the uplink keep their numbers.
	Carry([]kernel.Stacked) error
	// ClassOffered returns the traffic of a number by class since the last Forget.
	ClassOffered(number uint16) (ClassOffered, error)
	Close() error
}

// Table holds all settings of an uplink's classifier for containers. Settings of a number that is
// missing from a new table hold until Forget.
type Table struct {
	Numbers []Assignment
	// Published are the ports at which host processes answer for containers.
	Published map[Published]uint16
	// Destinations are the devices that received packets are for (Incoming), of containers and of the
	// host; nil leaves them as they are.
	Destinations map[Destination]uint16
	// Routing are the indexes, by MAC, of the host's devices above the uplink that route received packets
	// without a VLAN tag.
	Routing map[[6]byte]int
	// IndexDevices are the devices, by index, whose tags in tc_index are trusted.
	IndexDevices map[int]bool
	// UnknownBPS limits packets from unknown network namespaces; 0 while origins are not watched.
	UnknownBPS uint64
	// NoteSenders: note the container of every flow, for what the uplink receives (Incoming).
	NoteSenders bool
}

// Assignment holds the classifier's settings for one number.
type Assignment struct {
	Number uint16
	// CgroupPath is the cgroup whose sockets send the number's packets; "" for none.
	CgroupPath string
	// Class is the traffic class of all its packets; with ClassAuto each flow has its own.
	Class sched.TrafficClass
	// MarkDSCP: the DSCP field of its outgoing packets shows the class that they were served as.
	MarkDSCP bool
}

// Refusals are the parts of a Table that are not in force.
type Refusals struct {
	// Numbers holds the numbers with refused settings.
	Numbers map[uint16]Refusal
	// The others are the errors of the table's other parts.
	Published, Destinations, Index, Unknown, Senders error
}

// Refusal holds the errors of one number's Assignment, and of its published ports and destinations.
type Refusal struct{ Cgroup, Class, Mark, Published, Destinations error }

// settings are the kernel settings of a Table.
type settings struct {
	numbers map[uint16]*told
	unknown Applied[uint64]
	senders Applied[bool]
}

// told holds the kernel settings of one number.
type told struct {
	cgroup Applied[string]
	class  Applied[sched.TrafficClass]
	mark   Applied[bool]
}

// Apply applies a table to the classifier. It makes no system call for settings in force, and
// retries refused settings.
func (u *Uplink) Apply(t Table) Refusals {
	refusals := Refusals{Numbers: map[uint16]Refusal{}}
	if u.applied.numbers == nil {
		u.applied.numbers = map[uint16]*told{}
	}
	for _, want := range t.Numbers {
		if refusal := u.assign(want); refusal != (Refusal{}) {
			refusals.Numbers[want.Number] = refusal
		}
	}
	var refused map[uint16]error
	refused, refusals.Published = u.SetPublished(t.Published)
	for number, err := range refused {
		refusal := refusals.Numbers[number]
		refusal.Published = err
		refusals.Numbers[number] = refusal
	}
	refusals.Index = u.SetIndexDevices(t.IndexDevices)
	refusals.Unknown = u.applied.unknown.Apply(t.UnknownBPS, func() error { return u.LimitUnknownOrigins(t.UnknownBPS) })
	refusals.Senders = u.applied.senders.Apply(t.NoteSenders, func() error {
		return u.globals.set(uplinkVarNoteSenders, binary.NativeEndian.AppendUint32(nil, flag(t.NoteSenders)))
	})
	return refusals
}

// assign applies the settings of one number.
func (u *Uplink) assign(want Assignment) Refusal {
	had := u.applied.numbers[want.Number]
	if had == nil {
		had = &told{}
		u.applied.numbers[want.Number] = had
	}
	return Refusal{
		Cgroup: had.cgroup.Apply(want.CgroupPath, func() error {
			if want.CgroupPath == "" {
				return u.UnassignCgroup(want.Number)
			}
			return u.AssignCgroup(want.CgroupPath, want.Number)
		}),
		Class: had.class.Apply(want.Class, func() error { return u.SetTrafficClass(want.Number, want.Class) }),
		Mark:  had.mark.Apply(want.MarkDSCP, func() error { return u.SetMarkDSCP(want.Number, want.MarkDSCP) }),
	}
}

// Forget clears a number's cgroup, traffic class and counters, before another container gets the
// number.
func (u *Uplink) Forget(number uint16) error {
	delete(u.applied.numbers, number)
	return errors.Join(u.UnassignCgroup(number), u.ForgetClasses(number))
}
