package identity

import (
	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/share/sched"
)

// LoadFlowPrograms loads what AttachFlows attaches for a number: to run it on packets
// without a device. The tag goes into priority, which can be read back.
func (f *Flows) LoadFlowPrograms(number uint16) (tap, back *ebpf.Program, err error) {
	programs, err := f.load(tapConstants{Number: uint32(number), Priority: 1})
	return programs[flowProgWeirTap], programs[flowProgWeirBack], err
}

// HasClassifier says whether there is a classifier, also from an earlier agent.
func (f *Flows) HasClassifier() bool {
	var id uint32
	return f.trees.Lookup(uint32(0), &id) == nil
}

// ClassInPriority is the traffic class in a tag, and whether it is one of number.
func ClassInPriority(priority uint32, number uint16) (sched.TrafficClass, bool) {
	tag := priority >> uint32(uplinkWeirPriorityWEIR_PRIORITY_TAG_SHIFT)
	return sched.TrafficClass(tag >> uint32(uplinkWeirTagWEIR_TAG_CLASS_SHIFT) & 3),
		uint16(tag)&uint16(uplinkWeirTagWEIR_TAG_NUMBER_MASK) == number &&
			priority>>uint32(uplinkWeirPriorityWEIR_PRIORITY_MAGIC_SHIFT) == uint32(uplinkWeirPriorityWEIR_PRIORITY_MAGIC)
}

// SeenLater makes a number's flows ones that were seen so many of their milliseconds later.
func (f *Flows) SeenLater(number uint16, ms uint32) error {
	return f.change(number, func(b *flowWeirBucket) {
		for i := range b.SeenMs {
			b.SeenMs[i] += ms
		}
	})
}

// Quiet makes a number's flows ones that have sent nothing for so many more of their milliseconds.
func (f *Flows) Quiet(number uint16, ms uint32) error {
	return f.change(number, func(b *flowWeirBucket) {
		for i := range b.Flows {
			b.Flows[i].Load.DrainedMs -= ms
		}
	})
}

// change changes the buckets of a number's table.
func (f *Flows) change(number uint16, change func(*flowWeirBucket)) error {
	table, err := f.table(number)
	if err != nil {
		return err
	}
	defer table.Close()
	for i := range table.MaxEntries() {
		var bucket flowWeirBucket
		if err := table.Lookup(i, &bucket); err != nil {
			return err
		}
		change(&bucket)
		if err := table.Update(i, bucket, ebpf.UpdateExist); err != nil {
			return err
		}
	}
	return nil
}
