package identity

import "github.com/weir-project/weir/internal/kernel"

// What holds a network namespace says whose it is, the first of these first: the
// host's mounts come before files and mounts of containers, which may see copies of
// them.
const (
	processOfContainer = iota
	processOfHost
	mountOfHost
	fileOfContainer
	fileOfHost
	nobody
)

// OwnerOf decides whose the network namespace of an inode is by those who hold it,
// where containerOf knows the number of the container that a holder belongs to. It
// returns false if nobody does.
func OwnerOf(netns uint32, holders []kernel.NetNSHolder, containerOf func(kernel.NetNSHolder) (uint16, bool)) (owner Origin, held bool) {
	best := nobody
	for _, h := range holders {
		if h.Inode != netns {
			continue
		}
		number, rank := rankOf(h, containerOf)
		if rank < best {
			best, owner = rank, Origin{Number: number, ShownBy: h.Path}
		}
	}
	return owner, best < nobody
}

// rankOf is whose a holder shows its namespace to be, and how much that counts.
func rankOf(h kernel.NetNSHolder, containerOf func(kernel.NetNSHolder) (uint16, bool)) (number uint16, rank int) {
	number, isContainer := containerOf(h)
	switch {
	case h.How == kernel.ByProcess && isContainer:
		return number, processOfContainer
	case h.How == kernel.ByProcess:
		return NumberHost, processOfHost
	case h.PID == 1:
		return NumberNone, mountOfHost
	case isContainer:
		return number, fileOfContainer
	}
	return NumberNone, fileOfHost
}
