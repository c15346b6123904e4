package attach

import (
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/plan"
)

// Taps writes a container's number into the packets that pass a tap. Implementation:
// *identity.Taps.
type Taps interface {
	// Attach returns the ID of its program at the tap.
	Attach(tap identity.Tap, number uint16) (id uint32, err error)
	// Followers names programs and filters behind a tap that may take the number away.
	Followers(tap identity.Tap) (kernel.Others, error)
	// SoleProgram returns the ID of the only program at a tap; 0 if there is none, or more than one.
	SoleProgram(tap identity.Tap) (uint32, error)
	Close()
}

// QueueTags clears containers' numbers in packets that leave beside the uplinks, where they would
// cost time. Implementation: *identity.QueueTags.
type QueueTags interface {
	// Clear attaches a program to all devices that need it, given the indexes of the uplinks.
	Clear(uplinks []int) error
	// Detach removes the program from all devices.
	Detach() error
}

// Kernel holds the kernel interfaces that an Attacher uses.
type Kernel struct {
	Taps    Taps
	Bridges Bridges
	// QueueTags may be nil in tests.
	QueueTags QueueTags
	Origins   identity.OriginWatcher
	// Flows may be nil in tests.
	Flows *flows.Manager
	// Bypass may be nil in tests.
	Bypass Bypass
}

// OpenKernel opens the kernel and adopts the flow tables that an earlier agent left at the devices
// with these indexes, or makes new ones. Errors: a kernel that cannot run Weir.
func OpenKernel(uplinks ...int) (k Kernel, watcher *identity.Origins, err error) {
	taps, err := identity.NewTaps()
	if err != nil {
		return k, nil, fmt.Errorf("this kernel cannot run Weir (weir doctor tells more): %w", err)
	}
	watcher, err = identity.NewOrigins()
	if err != nil {
		taps.Close()
		return k, nil, err
	}
	opened, err := identity.OpenFlows(uplinks...)
	if err != nil {
		taps.Close()
		return k, nil, errors.Join(fmt.Errorf("this kernel cannot keep flows (weir doctor tells more): %w", err), watcher.Close())
	}
	watcher.ShareFlows(opened)
	keeper, err := identity.NewBridges()
	if err != nil {
		taps.Close()
		return k, nil, errors.Join(err, opened.Close(), watcher.Close())
	}
	return Kernel{taps, keeper, &identity.QueueTags{}, watcher, flows.New(opened, kernel.MemoryBytes()), identity.Bypass{}}, watcher, nil
}

// Close closes all handles. Programs and maps in the kernel stay in force.
func (k Kernel) Close() {
	k.Taps.Close()
	_ = k.Origins.Close()
	_ = k.Bridges.Close()
	if k.Flows != nil {
		_ = k.Flows.Close()
	}
}

// Attacher attaches containers to the uplinks.
type Attacher struct {
	Kernel
	// IgnoreDefaultRoute: a default route through no uplink is the operator's wish.
	IgnoreDefaultRoute bool

	log       *slog.Logger
	inspector *identity.Inspector
	bridges   bridges
	origins   *origins
	// flowsErr is the last error of making flow tables.
	flowsErr error
	// verified is the number of the container that was verified last; verifiedAt is the time
	// of that check.
	verified   uint16
	verifiedAt time.Time
	// routesFrom is the time of the next look at the routes.
	routesFrom time.Time
	// receiving are the uplinks whose received traffic is shared, above the host's devices above them;
	// aboveOf are the indexes of the uplinks, nil if the devices have to be listed again.
	receiving, above []kernel.Link
	aboveOf          []int
	// routing are those of them that route what comes without a VLAN tag, as in identity.Table, by the
	// index of the uplink.
	routing map[int]map[[6]byte]int
}

// New returns an attacher that has changed nothing in the kernel yet.
func New(kernel Kernel, log *slog.Logger) *Attacher {
	return &Attacher{
		Kernel: kernel, log: log, inspector: identity.NewInspector(),
		bridges: bridges{Bridges: kernel.Bridges, cleared: map[int]*clearance{}, leftover: true},
		origins: newOrigins(kernel.Origins),
	}
}

// Apply programs the kernel for all running containers. A change that the kernel refuses is listed
// in the complaints of its container or uplink, and the next call retries it.
func (a *Attacher) Apply(all []*Container, uplinks []*Uplink) {
	list := controlled(all)
	a.applyFlows(list)
	for _, c := range list {
		a.applyBypass(c)
		for i := range c.Devices {
			a.applyDevice(c, &c.Devices[i])
		}
	}
	a.listAbove(uplinks)
	table := identity.Table{Published: publishedBy(list), Destinations: destinationsOf(list, a.receiving, a.above), IndexDevices: a.indexDevices(list)}
	for _, c := range list {
		if c.Mode == "" {
			// An earlier agent controlled it, and its network has not been inspected yet: its
			// settings stay as they are.
			continue
		}
		want := identity.Assignment{Number: c.Number, Class: c.Want.Class, MarkDSCP: c.Want.MarkDSCP}
		if c.SendsFromSockets() || !c.Seen.Lacks.NetAdmin {
			want.CgroupPath = c.Seen.CgroupPath
		}
		table.Numbers = append(table.Numbers, want)
	}
	watching := a.watchOrigins(all)
	for _, u := range uplinks {
		table.UnknownBPS, table.NoteSenders, table.Routing = 0, u.NoteSenders, nil
		if r, is := u.Classifier().(receiver); is {
			table.Routing = a.routing[r.From()]
		}
		if watching && u.Classifier() != nil {
			table.UnknownBPS = plan.Link{RateBPS: u.RateBPS()}.UnknownBPS()
		}
		a.applyTable(u, table, list)
	}
	if !watching {
		a.unwatchOrigins()
	}
}

// Release undoes all kernel changes made for a container and clears the state of its number. The
// caller frees the number afterwards.
func (a *Attacher) Release(c *Container, uplinks []*Uplink) {
	if err := Undo(c.Seen.NetNSPath, c.Number, c.Devices); err != nil {
		a.log.Warn("cannot restore a container's devices", "name", c.Seen.Name, "error", err)
	}
	a.Forget(c, uplinks)
	a.allowBypass(c)
	c.Devices = nil
}

// Forget clears all kernel state of the container's number: its cgroup, flows and class. Call it
// before another container gets the number, which would inherit that state otherwise.
func (a *Attacher) Forget(c *Container, uplinks []*Uplink) {
	a.dropAnswers(c)
	c.flows = flowState{answers: c.flows.answers}
	if c.Number == 0 {
		return
	}
	if a.Flows != nil {
		if err := a.Flows.Forget(c.Number); err != nil {
			a.log.Warn("cannot forget the flows of a container", "name", c.Seen.Name, "error", err)
		}
	}
	for _, u := range uplinks {
		delete(u.refusals.Numbers, c.Number)
		if u.Classifier() == nil {
			continue
		}
		if err := u.Classifier().Forget(c.Number); err != nil {
			a.log.Warn("cannot forget the number of a container", "name", c.Seen.Name, "uplink", u.Name(), "error", err)
		}
	}
}

// Remove detaches the programs from all bridges and from devices beside the uplinks. The next Apply
// and Check attach them again.
func (a *Attacher) Remove() error {
	a.bridges.recheck()
	a.routesFrom = time.Time{}
	err := a.Bridges.Detach(nil)
	if a.QueueTags != nil {
		err = errors.Join(err, a.QueueTags.Detach(), identity.DetachCarriers(nil))
	}
	return err
}

// Recheck makes the next Apply verify the programs at a container's devices and cgroup, because
// another program may have removed them.
func (a *Attacher) Recheck(c *Container) {
	c.bypass.Recheck()
	for i := range c.Devices {
		if d := &c.Devices[i]; !a.isUnchanged(d) {
			d.tap.Recheck()
		}
	}
}

// Check looks for changes that other programs made to containers' devices and uplinks. The next
// Apply repairs them.
func (a *Attacher) Check(uplinks []*Uplink, now time.Time) {
	if !now.Before(a.routesFrom) {
		a.checkDevices(uplinks, now)
	}
	a.checkPrograms(uplinks)
	a.checkOrigins()
	a.bridges.recheck()
}

// routesInterval is the time between two looks at the routes. A look lists all devices and routes,
// of which a router may have a million, while the control loop waits: it takes at most a hundredth
// of the time (routesDivisor).
const (
	routesInterval = 8 * time.Second
	routesDivisor  = 100
)

// CheckUplinks looks at the routes, and for programs of others at the uplinks.
func (a *Attacher) CheckUplinks(uplinks []*Uplink, now time.Time) {
	a.checkDevices(uplinks, now)
	a.checkPrograms(uplinks)
}

// checkPrograms looks for programs of others at the uplinks, and at what is below them.
func (a *Attacher) checkPrograms(uplinks []*Uplink) {
	for _, u := range uplinks {
		if !u.Incoming {
			a.checkFollowers(u)
			a.checkBelow(u)
		}
	}
}

// checkDevices looks at the routes, and at the devices beside the uplinks.
func (a *Attacher) checkDevices(uplinks []*Uplink, now time.Time) {
	a.checkRoutes(uplinks, now)
	a.aboveOf = nil
	var indexes []int
	for _, u := range uplinks {
		if u.Classifier() != nil {
			indexes = append(indexes, u.Ifindex())
		}
	}
	if a.QueueTags == nil || len(indexes) == 0 {
		return
	}
	if err := a.QueueTags.Clear(indexes); err != nil {
		a.log.Warn("packets that leave beside the uplinks take more time than they need", "error", err)
	}
}

// verifyInterval is the time in which Verify goes once through all containers. It is below the
// ten seconds after which a container no longer counts as ok.
const verifyInterval = 8 * time.Second

// Verify checks that the programs at devices and cgroups of the next few containers are still
// attached, and attaches missing ones again. Each call checks as many containers as it takes to check
// all of them once per verifyInterval; the control loop waits meanwhile, so it is a few at a time. at(i) returns the i-th
// of count containers, in the order of their numbers.
func (a *Attacher) Verify(count int, at func(i int) *Container, now time.Time) {
	if a.verifiedAt.IsZero() || count == 0 {
		a.verifiedAt = now
		return
	}
	pause := verifyInterval / time.Duration(count)
	due := min(int(now.Sub(a.verifiedAt)/pause), count)
	if due <= 0 {
		return
	}
	a.verifiedAt = a.verifiedAt.Add(time.Duration(due) * pause)
	if now.Sub(a.verifiedAt) > pause { // the control loop stood still
		a.verifiedAt = now
	}
	first := sort.Search(count, func(i int) bool { return at(i).Number > a.verified })
	for i := range due {
		c := at((first + i) % count)
		a.verified = c.Number
		c.bypass.Recheck()
		a.applyBypass(c)
		for j := range c.Devices {
			if d := &c.Devices[j]; d.tap.Told() && d.tap.Err() == nil && !a.isUnchanged(d) {
				d.tap.Recheck()
				a.applyDevice(c, d)
			}
		}
	}
}

// hasCgroupOnly reports whether only the cgroup identifies the container's packets (host mode).
// Before the first inspection, only HostNetwork tells.
func (c *Container) hasCgroupOnly() bool {
	return (c.Mode == v1.ModeHost || c.Seen.HostNetwork) && c.Seen.CgroupPath != ""
}
