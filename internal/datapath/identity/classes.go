package identity

import (
	"fmt"
	"math"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/sched"
)

// ClassAuto is of containers only: each of its flows has a class of its own. All other
// traffic classes the programs write as the scheduler does (enum weir_class in
// bpf/intf.h).
const ClassAuto = sched.TrafficClass(uplinkWeirClassWEIR_CLASS_AUTO)

// classes are the maps of the classifier that are about traffic classes.
type classes struct {
	minors, activities *ebpf.Map
}

// change changes what is said about a number's traffic classes.
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

// SetMinors says which classes of the scheduler the packets of a number go into, by
// traffic class. Of a class without a minor
// of its own (0) they go where those without a class go; if that is 0 too, the minor
// is the number.
func (u *Uplink) SetMinors(number uint16, minors sched.Minors) error {
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.Minors = minors })
}

// SetTrafficClass says of which class all packets of a number are; Unclassified:
// they are of none, but what their tap says; ClassAuto: each flow of its own.
func (u *Uplink) SetTrafficClass(number uint16, class sched.TrafficClass) error {
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.TrafficClass = uint32(class) })
}

// SetEFRate holds what a number sends as EF to a rate: what is more competes as BE.
// 0: no limit. It is not a limit of the number's, only of what goes first.
func (u *Uplink) SetEFRate(number uint16, bps uint64) error {
	var shifted uint64
	if bps > 0 {
		shifted = max(1, uint64(math.Ceil(8e9*(1<<uplinkWeirLinkWEIR_LINK_BYTE_SHIFT)/float64(bps))))
	}
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.EfByteShiftedNs = shifted })
}

// SetMarkDSCP has the DSCP of a number's packets say, as they leave, as which class
// they were served: EF 46, AF31 26, BE 0, for what is on the way after this host. That
// of packets of no class stays, and so does ECN.
func (u *Uplink) SetMarkDSCP(number uint16, mark bool) error {
	return u.classes.change(number, func(m *uplinkWeirMinors) { m.MarkDscp = flag(mark) })
}

// ForgetClasses makes a number one of no traffic class, which sent nothing yet:
// before another gets it. Where its packets go the scheduler says (SetMinors,
// SetEFRate), to each holder anew.
func (u *Uplink) ForgetClasses(number uint16) error {
	err := u.classes.change(number, func(m *uplinkWeirMinors) { m.TrafficClass, m.MarkDscp = uint32(sched.Unclassified), 0 })
	if err != nil {
		return err
	}
	if err := u.classes.activities.Update(uint32(number), uplinkWeirClassActivity{}, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("clear what number %d sent of each class: %w", number, err)
	}
	return nil
}

// ClassOffered is what a number has handed to the uplink of each traffic class, by
// class, dropped packets included. Unclassified is not counted.
type ClassOffered struct {
	Bytes, Packets [sched.NumTrafficClasses]uint64
	// EFExcessBytes were EF above its rate: they are counted as BE, too.
	EFExcessBytes uint64
}

// ClassOffered reads what a number has sent of each traffic class, since its classes
// were last forgotten.
func (u *Uplink) ClassOffered(number uint16) (ClassOffered, error) {
	var a uplinkWeirClassActivity
	if err := u.classes.activities.Lookup(uint32(number), &a); err != nil {
		return ClassOffered{}, fmt.Errorf("read what number %d sent of each class: %w", number, err)
	}
	return ClassOffered{Bytes: a.Bytes, Packets: a.Packets, EFExcessBytes: a.EfExcessBytes}, nil
}
