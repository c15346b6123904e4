package htb

import (
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Minors are the numbers of HTB classes. Packets carry the number of their container
// (internal/datapath/identity); only this file maps that number to a class, and tellTraffic
// sends the mapping to the classifier.
//
// The low numberBits of a minor are the container's number. The high bits select its class:
//
//	0010  its leaf, or
//	1010  the leaf of its EF, 2010 of its AF, 3010 of its BE
//	4010  its share
//	5010  its guarantee, if it has traffic classes
const (
	numberBits = 12
	numberMask = 1<<numberBits - 1
	// shareBit marks minors of classes that have others below them.
	shareBit     = 0x4000
	guaranteeBit = 0x1000
)

// classMinor returns the minor of the leaf for unclassified packets of a number without traffic
// classes.
func classMinor(number uint16) uint16 { return number }

// trafficMinor returns the minor of the leaf of a traffic class.
func trafficMinor(number uint16, kind sched.TrafficClass) uint16 {
	return uint16(kind)<<numberBits | number
}

// numberOf returns the number that a minor belongs to.
func numberOf(minor uint16) uint16 { return minor & numberMask }

// kindOf returns the traffic class of a leaf's minor; sched.Unclassified for other minors.
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

// queueOf returns the handle of a leaf's queue, whose major is the leaf's minor.
func queueOf(minor uint16) kernel.Handle { return kernel.NewHandle(minor, 0) }

func leafQdisc(number uint16) kernel.Handle { return queueOf(classMinor(number)) }

// minorsOf returns the minors of the leaves for the packets of a competitor. Packets without a
// traffic class go to BE.
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

// tellTraffic tells the classifier the present leaf classes and EF limits of these members. It makes no system call
// for unchanged members. Leaves that packets went to before still exist (drain).
func (b *Backend) tellTraffic(members []*member) error {
	if b.traffic == nil {
		return nil
	}
	for _, m := range members {
		minors, efBPS := minorsOf(&m.want), uint64(0)
		if t := m.want.Traffic; t.Ordered {
			// The classifier takes 0 for no limit, and admits no more than HTB's ceiling: the rest would wait in EF's queue.
			class := b.class(m)
			efBPS = max(1, t.Parts.Of(min(class.shareBPS(), class.ceilBPS(b.link.RateBPS))).EFBPS)
		}
		if !m.told.known || efBPS != m.told.efBPS {
			if err := b.traffic.SetEFRate(m.want.Number, efBPS); err != nil {
				return err
			}
		}
		if !m.told.known || minors != m.told.minors {
			if err := b.traffic.SetMinors(m.want.Number, minors); err != nil {
				return err
			}
		}
		m.told = told{true, minors, efBPS}
	}
	return nil
}
