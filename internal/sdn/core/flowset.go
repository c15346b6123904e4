package core

// setKind is what a set of flows is for. A flow is in one set of each kind at most.
type setKind int

const (
	fromHost setKind = iota
	toHost
	atIngress
	setKinds
)

// flowSet is a set of flows whose members know their place in it: flows come and
// go many thousand times a second, and all sets must follow.
type flowSet []*Flow

func (s *flowSet) add(k setKind, f *Flow) {
	f.place[k] = len(*s)
	*s = append(*s, f)
}

func (s *flowSet) remove(k setKind, f *Flow) {
	list, i, last := *s, f.place[k], len(*s)-1
	if i > last || list[i] != f {
		return
	}
	list[i] = list[last]
	list[i].place[k] = i
	list[last] = nil
	*s = list[:last]
}

// hostFlows are the flows from and to a host.
type hostFlows struct{ from, to flowSet }

// ofHost are those of an address, which may be new.
func (c *Core) ofHost(mac [6]byte) *hostFlows {
	s := c.ofMAC[mac]
	if s == nil {
		s = &hostFlows{}
		c.ofMAC[mac] = s
	}
	return s
}

func (c *Core) leaveHosts(f *Flow) {
	if s := c.ofMAC[f.Key.SrcMAC]; s != nil {
		s.from.remove(fromHost, f)
		if len(s.from)+len(s.to) == 0 {
			delete(c.ofMAC, f.Key.SrcMAC)
		}
	}
	if s := c.ofMAC[f.to()]; s != nil {
		s.to.remove(toHost, f)
		if len(s.from)+len(s.to) == 0 {
			delete(c.ofMAC, f.to())
		}
	}
}
