package loop

import (
	"cmp"
	"log/slog"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

// containers tracks all running containers and the host class. It learns about containers, resolves
// their policies, and assigns their numbers and their shares of every uplink.
type containers struct {
	*registry
	host *container
	// rules are the operator's rules for the policies of containers.
	rules policy.Rules
	// asked lists the names of the sources; sources holds their state.
	asked   []string
	sources map[string]v1.Source
	// unpublished is what no published snapshot has yet.
	unpublished unpublished
	uplinks     *uplinks
	attach      *attach.Attacher
	log         *slog.Logger

	// rescan requests an inspection of containers without an engine or without devices; rescanning
	// is set while one is requested.
	rescan     chan struct{}
	rescanning bool
	// lateCount is the number of inspections that go on beside the loop; lateEnds has those that ended.
	lateCount int
	lateEnds  chan *lateInspection
	// unknownVeths are the indexes of new veths that belong to no known container.
	unknownVeths []int
	// checked is the number of the container that was checked last.
	checked uint16
}

// unpublished are changes that no published snapshot has yet: containers that started, and sources that were lost or connected.
type unpublished struct {
	started map[*container]bool
	sources map[string]bool
}

func (u *unpublished) clear() {
	clear(u.started)
	clear(u.sources)
}

func newContainers(config Config, attacher *attach.Attacher, uplinks *uplinks) *containers {
	cs := &containers{
		registry:    newRegistry(),
		host:        newHost(config.Host, config.HostIn),
		rules:       config.Rules,
		sources:     map[string]v1.Source{},
		unpublished: unpublished{map[*container]bool{}, map[string]bool{}},
		uplinks:     uplinks,
		attach:      attacher,
		log:         config.Logger,
		rescan:      make(chan struct{}, 1), lateEnds: make(chan *lateInspection),
	}
	cs.asked = pods.Runtimes() // weir-k8s may come at any time
	for _, s := range config.Sources {
		cs.asked = append(cs.asked, s.Name())
		if _, optional := s.(discovery.Optional); !optional {
			cs.sources[s.Name()] = v1.Source{Name: s.Name(), Reason: "not asked yet"}
		}
	}
	return cs
}

// registry indexes the containers.
type registry struct {
	byKey    map[key]*container
	byNumber map[uint16]*container
	next     uint16
}

func newRegistry() *registry {
	return &registry{byKey: map[key]*container{}, byNumber: map[uint16]*container{}, next: identity.NumberFirst}
}

// all returns the containers, oldest first.
func (r *registry) all() []*container {
	list := make([]*container, 0, len(r.byKey))
	for _, c := range r.byKey {
		list = append(list, c)
	}
	slices.SortFunc(list, startOrder)
	return list
}

// inNetNS returns the containers in a network namespace, oldest first: the first one inspected sets
// the policy of the namespace.
func (r *registry) inNetNS(netns kernel.NetNSID) []*container {
	var list []*container
	for _, c := range r.byKey {
		if c.NetNS == netns {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, startOrder)
	return list
}

// controlled returns the containers that have a number, sorted by number.
func (r *registry) controlled() []*container {
	list := make([]*container, 0, len(r.byNumber))
	for _, c := range r.byNumber {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *container) int { return cmp.Compare(a.Number, b.Number) })
	return list
}

// unattached returns the containers that need another inspection, oldest first.
func (r *registry) unattached() []*container {
	var list []*container
	for _, c := range r.byKey {
		if c.Unattached {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, startOrder)
	return list
}

func (r *registry) anyUnattached() bool { return len(r.unattached()) > 0 }

// hasVeth reports whether the device with index ifindex is the host end of a container's veth.
func (r *registry) hasVeth(ifindex int) bool {
	for _, c := range r.byNumber {
		if c.HasVeth(ifindex) {
			return true
		}
	}
	return false
}

// lostVeth marks the container of a veth whose host end is gone for another inspection: it may have
// another veth.
func (r *registry) lostVeth(ifindex int) {
	for _, c := range r.byNumber {
		if c.HasVeth(ifindex) {
			c.Unattached = true
		}
	}
}

// movedVeth marks a container for another inspection if the host end of its veth became a port of a
// bridge after the last one.
func (r *registry) movedVeth(ifindex, bridge int) {
	if bridge == 0 {
		return // moving between bridges, or a late event
	}
	for _, c := range r.byNumber {
		if c.VethMoved(ifindex, bridge) {
			c.Unattached = true
		}
	}
}

// assign gives a container a number: the preferred one if it is free, or else the next free one in
// turn. A freed number is therefore not reused while packets of its last holder may be in transit.
// It returns false if no number is free.
func (r *registry) assign(c *container, preferred uint16) bool {
	if r.claim(c, preferred) {
		return true
	}
	for range identity.NumberLast - identity.NumberFirst + 1 {
		candidate := r.next
		if r.next++; r.next > identity.NumberLast {
			r.next = identity.NumberFirst
		}
		if r.claim(c, candidate) {
			return true
		}
	}
	return false
}

// claim gives a container this number and returns true, if the number is a container's and free.
func (r *registry) claim(c *container, number uint16) bool {
	if number < identity.NumberFirst || number > identity.NumberLast || r.byNumber[number] != nil {
		return false
	}
	c.Number = number
	r.byNumber[number] = c
	return true
}

// free takes the container's number back.
func (r *registry) free(c *container) {
	if c.Number != 0 {
		delete(r.byNumber, c.Number)
		c.Number = 0
	}
}

// attached returns all containers as the attacher knows them.
func (r *registry) attached() []*attach.Container {
	list := make([]*attach.Container, 0, len(r.byKey))
	for _, c := range r.byKey {
		list = append(list, &c.Container)
	}
	return list
}
