package identity

import "github.com/weir-project/weir/internal/datapath/kernel"

// Ranks of evidence for the owner of a network namespace, strongest first. The host's mounts come
// before files and mounts of containers, which may see copies of them.
const (
	processOfContainer = iota
	processOfHost
	mountOfHost
	fileOfContainer
	fileOfHost
	noHolder
)

// OwnerOf returns the number of the network namespace with that inode, derived from its holders.
// containerOf returns the number of a holder's container. It returns false without holders.
func OwnerOf(netns uint32, holders []kernel.NetNSHolder, containerOf func(kernel.NetNSHolder) (uint16, bool)) (owner Origin, held bool) {
	best := noHolder
	for _, h := range holders {
		if h.Inode != netns {
			continue
		}
		number, rank := rankOf(h, containerOf)
		if rank < best {
			best, owner = rank, Origin{Number: number, ShownBy: h.Path}
		}
	}
	return owner, best < noHolder
}

// rankOf returns the number that a holder indicates, and the rank of that evidence.
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
