package htb

import (
	"github.com/weir-project/weir/internal/kernel"
)

// Minors: the numbers of classes, apart from those of containers. What a container's
// packets carry is its own number (internal/identity); to which class that leads is
// decided here and nowhere else.
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
