package identity

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/share/sched"
)

// ClassAuto gives each flow of a container a class of its own. The programs use the scheduler's
// values for all other traffic classes (enum weir_class in bpf/intf.h).
const ClassAuto = sched.TrafficClass(uplinkWeirClassWEIR_CLASS_AUTO)

// classes are the classifier's maps for traffic classes.
type classes struct {
	minors, activities *ebpf.Map
}

// change updates the traffic class settings of a number.
func (c classes) change(number uint16, set func(*uplinkWeirMinors)) error {
	var have uplinkWeirMinors
	if err := c.minors.Lookup(uint32(number), &have); err != nil {
		return fmt.Errorf("read the classes of number %d: %w", number, err)
	}
	want := have
	set(&want)
	if want == have {
		return nil
	}
	if err := c.minors.Update(uint32(number), want, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("set the classes of number %d: %w", number, err)
	}
	return nil
}

// SetMinors sets the scheduler classes for the packets of a number, by traffic class. A class
// without a minor (0) uses that of unclassified packets; if that is 0 too, the minor is the number.
func (u *Uplink) SetMinors(number uint16, minors sched.Minors) error {
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.Minors = minors })
}

// SetTrafficClass sets the class of all packets of a number. With Unclassified only the tap may set
// a class; with ClassAuto each flow has its own.
func (u *Uplink) SetTrafficClass(number uint16, class sched.TrafficClass) error {
	if class != sched.Unclassified {
		err := u.classes.activities.Update(uint32(number), uplinkWeirClassActivity{}, ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("count what number %d sends of each class: %w", number, err)
		}
	}
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.TrafficClass = uint32(class) })
}

// SetEFRate limits the EF traffic of a number, in bits per second; the excess competes as BE. 0
// means no limit. The number's total traffic is not limited.
func (u *Uplink) SetEFRate(number uint16, bps uint64) error {
	var shifted uint64
	if bps > 0 {
		shifted = max(1, uint64(math.Ceil(8e9*(1<<uplinkWeirLinkWEIR_LINK_BYTE_SHIFT)/float64(bps))))
	}
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.EfByteShiftedNs = shifted })
}

// SetMarkDSCP makes the DSCP of a number's outgoing packets show the class that they were served as
// (EF 46, AF31 26, BE 0), for the network after this host. DSCP of unclassified packets and ECN are
// unchanged.
func (u *Uplink) SetMarkDSCP(number uint16, mark bool) error {
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.MarkDscp = flag(mark) })
}

// ForgetClasses clears a number's traffic class and counters before another container gets the
// number. The scheduler sets the destinations of its packets (SetMinors, SetEFRate) anew for each
// holder.
func (u *Uplink) ForgetClasses(number uint16) error {
	err := u.classes.change(number, func(m *uplinkWeirMinors) { m.TrafficClass, m.MarkDscp = uint32(sched.Unclassified), 0 })
	if err != nil {
		return err
	}
	if err := u.classes.activities.Delete(uint32(number)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("clear what number %d sent of each class: %w", number, err)
	}
	return nil
}

// ClassOffered holds the bytes that a number has handed to the uplink, by traffic class, dropped
// packets included. Unclassified packets are not counted.
type ClassOffered struct {
	Bytes, Packets [sched.NumTrafficClasses]uint64
	// EFExcessBytes were EF above the EF rate; they are also counted as BE.
	EFExcessBytes uint64
}

// ClassOffered returns the traffic of a number by class, since it got one after ForgetClasses.
func (u *Uplink) ClassOffered(number uint16) (ClassOffered, error) {
	var a uplinkWeirClassActivity
	if err := u.classes.activities.Lookup(uint32(number), &a); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return ClassOffered{}, fmt.Errorf("read what number %d sent of each class: %w", number, err)
	}
	return ClassOffered{Bytes: a.Bytes, Packets: a.Packets, EFExcessBytes: a.EfExcessBytes}, nil
}
