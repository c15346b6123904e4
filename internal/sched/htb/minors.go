package htb

import (
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched"
)

// Minors: the numbers of classes, apart from those of containers. What a container's
// packets carry is its own number (internal/identity); to which class that leads is
// decided here and nowhere else, and the classifier is told where it is another one.
//
// There are two classes for each container, its share and its leaf. The share's minor
// is the leaf's with shareBit besides, and so leaves stay below shareBit.
const shareBit = 0x4000

// classMinor is the minor of the leaf that unclassified packets of a number go to.
func classMinor(number uint16) uint16 { return number }

// numberOf is the reverse of classMinor.
func numberOf(minor uint16) uint16 { return minor }

func leafClass(number uint16) kernel.Handle {
	return kernel.NewHandle(classMajor, classMinor(number))
}

func shareClass(number uint16) kernel.Handle {
	return kernel.NewHandle(classMajor, shareBit|classMinor(number))
}

// leafQdisc is the queue of a leaf. Its major is the leaf's minor.
func leafQdisc(number uint16) kernel.Handle { return kernel.NewHandle(classMinor(number), 0) }

// minorsOf are the minors of the leaves that packets of a class go to, where they are
// not the class's own number.
func minorsOf(c *sched.Class) sched.Minors {
	var minors sched.Minors
	if minor := classMinor(c.Number); minor != c.Number {
		minors[sched.Unclassified] = minor
	}
	return minors
}

// withholdMinors has no packet go to a class that is about to be removed.
func (b *Backend) withholdMinors() error {
	if b.traffic == nil {
		return nil
	}
	for _, m := range b.members {
		want := minorsOf(&m.want)
		if !m.minorsTold || want == m.minors {
			continue
		}
		for kind := range want {
			if want[kind] != m.minors[kind] {
				want[kind] = 0
			}
		}
		if err := b.traffic.SetMinors(m.want.Number, want); err != nil {
			return err
		}
		m.minors = want
	}
	return nil
}

// tellMinors has packets go to the classes that there are now. It makes no system
// call for those who were told before.
func (b *Backend) tellMinors() error {
	if b.traffic == nil {
		return nil
	}
	for _, m := range b.members {
		want := minorsOf(&m.want)
		if m.minorsTold && want == m.minors {
			continue
		}
		if err := b.traffic.SetMinors(m.want.Number, want); err != nil {
			return err
		}
		m.minors, m.minorsTold = want, true
	}
	return nil
}
