package htb

import (
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Minors: the numbers of classes, apart from those of containers. What a container's
// packets carry is its own number (internal/identity); to which class that leads is
// decided here and nowhere else, and told the classifier (tellTraffic).
//
// A number has numberBits, and above it a minor says what of the number's it is:
//
//	0010  its leaf, or
//	1010  the leaf of its EF, 2010 of its AF, 3010 of its BE
//	4010  its share
//	5010  its guarantee, where that is not the leaf's
const (
	numberBits = 12
	numberMask = 1<<numberBits - 1
	// shareBit is set in minors of classes that have others below them.
	shareBit     = 0x4000
	guaranteeBit = 0x1000
)

// classMinor is the minor of the leaf that unclassified packets of a number go to,
// unless it has traffic classes.
func classMinor(number uint16) uint16 { return number }

// trafficMinor is the minor of the leaf of a traffic class.
func trafficMinor(number uint16, kind sched.TrafficClass) uint16 {
	return uint16(kind)<<numberBits | number
}

// numberOf is whose minor it is.
func numberOf(minor uint16) uint16 { return minor & numberMask }

// kindOf is the traffic class whose leaf a minor is; sched.Unclassified for others.
func kindOf(minor uint16) sched.TrafficClass {
	if minor&shareBit != 0 {
		return sched.Unclassified
	}
	return sched.TrafficClass(minor >> numberBits)
}

func leafClass(number uint16) kernel.Handle {
	return kernel.NewHandle(classMajor, classMinor(number))
}

func trafficClass(number uint16, kind sched.TrafficClass) kernel.Handle {
	return kernel.NewHandle(classMajor, trafficMinor(number, kind))
}

func shareClass(number uint16) kernel.Handle {
	return kernel.NewHandle(classMajor, shareBit|number)
}

func guaranteeClass(number uint16) kernel.Handle {
	return kernel.NewHandle(classMajor, shareBit|guaranteeBit|number)
}

// queueOf is the queue of a leaf. Its major is the leaf's minor.
func queueOf(minor uint16) kernel.Handle { return kernel.NewHandle(minor, 0) }

func leafQdisc(number uint16) kernel.Handle { return queueOf(classMinor(number)) }

// minorsOf are the minors of the leaves that packets of a class go to. What is of no
// traffic class goes with BE.
func minorsOf(c *sched.Competitor) sched.Minors {
	if !c.Traffic.Ordered {
		return sched.Minors{sched.Unclassified: classMinor(c.Number)}
	}
	return sched.Minors{
		sched.Unclassified: trafficMinor(c.Number, sched.BE),
		sched.EF:           trafficMinor(c.Number, sched.EF),
		sched.AF:           trafficMinor(c.Number, sched.AF),
		sched.BE:           trafficMinor(c.Number, sched.BE),
	}
}

// tellTraffic has packets go to the classes that there are now, and says what of them
// goes first. It makes no system call for those who were told before. What packets
// went to before is still there (drain).
func (b *Backend) tellTraffic() error {
	if b.traffic == nil {
		return nil
	}
	for _, m := range b.members {
		minors, efBPS := minorsOf(&m.want), uint64(0)
		if t := m.want.Traffic; t.Ordered {
			// To the classifier 0 is no limit.
			efBPS = max(1, t.Parts.Of(max(m.allocatedBPS, m.guaranteedBPS)).EFBPS)
		}
		if !m.told || efBPS != m.efBPS {
			if err := b.traffic.SetEFRate(m.want.Number, efBPS); err != nil {
				return err
			}
		}
		if !m.told || minors != m.minors {
			if err := b.traffic.SetMinors(m.want.Number, minors); err != nil {
				return err
			}
		}
		m.minors, m.efBPS, m.told = minors, efBPS, true
	}
	return nil
}
