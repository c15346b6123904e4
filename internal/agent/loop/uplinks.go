package loop

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/uplink"
)

// uplinks are the configured uplinks with their present state.
type uplinks struct {
	list    []*link
	machine machine
	store   *state.Store
	log     *slog.Logger
	// defaultIndex is the index of the default route's device at the last look of routeMoved; the next
	// is after followFrom.
	defaultIndex int
	followFrom   time.Time
	// holdDown is the time that Auto stays at a device after it got there; it ended, or ends, at heldUntil.
	holdDown  time.Duration
	heldUntil time.Time
}

// open claims the uplinks. One of several may be missing; it is shared when it appears. Auto waits for a
// device that can be shared.
func (us *uplinks) open(configs []UplinkConfig, reserveBasisPoints uint32) error {
	var missing []error
	for _, config := range configs {
		device := uplink.New(config, us.machine, us.store)
		problem := device.Claim()
		u := newLink(device, reserveBasisPoints)
		us.list = append(us.list, u)
		if config.In.Shared {
			us.list = append(us.list, us.incoming(u, config))
		}
		switch {
		case problem == nil:
		case problem.Kind == uplink.Missing, waits(u):
			missing = append(missing, problem)
		default:
			return problem
		}
	}
	for i, u := range us.list {
		u.index = i
	}
	if len(missing) == len(configs) && configs[0].Name != uplink.Auto {
		return errors.Join(missing...)
	}
	for _, err := range missing {
		us.log.Error("uplink cannot be shared out yet; waiting for it", "error", err)
	}
	return nil
}

// waits reports whether an agent starts in spite of the uplink's problems: those of the device that the
// default route leads through now end when it leads elsewhere. What the kernel refuses does not.
func waits(u *link) bool {
	var problems uplink.Problems
	errors.As(u.device.Problem(), &problems)
	return u.device.Config().Name == uplink.Auto && !slices.ContainsFunc(problems, func(p *uplink.Problem) bool { return p.Kind == uplink.Refused })
}

func (us *uplinks) close() {
	for _, u := range us.list {
		u.device.Close()
	}
	us.machine.Close()
}

// drop gives back the uplinks of an earlier agent that the configuration no longer names.
func (us *uplinks) drop() error {
	var names []string
	for _, saved := range us.store.Uplinks {
		names = append(names, saved.Name)
	}
	for _, name := range names {
		wanted := slices.ContainsFunc(us.list, func(u *link) bool { return u.device.Name() == name })
		if wanted {
			continue
		}
		if _, err := uplink.GiveBack(name, us.machine, us.store); err != nil {
			return err
		}
		us.log.Info("uplink given back: the configuration no longer names it", "uplink", name)
	}
	return nil
}

// addShares gives a container its share of every uplink.
func (cs *containers) addShares(c *container) {
	for _, u := range cs.uplinks.list {
		s := c.addShare(u)
		if c == cs.host {
			u.host = s
		}
	}
}

// addShare gives a container a share of the uplink, after its existing shares.
func (c *container) addShare(u *link) *share {
	s := &share{container: c, uplink: u, totals: c.earlier[u.device.Name()]}
	c.shares = append(c.shares, s)
	return s
}

// claim claims one more uplink, which must exist, and returns it with the one for what it receives, if
// that is shared.
func (us *uplinks) claim(config UplinkConfig, reserveBasisPoints uint32) ([]*link, error) {
	device := uplink.New(config, us.machine, us.store)
	problem := device.Claim()
	if taken := us.at(device.Ifindex()); taken != nil {
		return nil, fmt.Errorf("%s is %s, which is shared out already: name it once, and restart the agent if it is to go by the other name", config.Name, taken.device.Name())
	}
	if problem != nil {
		us.store.Forget(device.Name()) // nothing was changed
		return nil, problem
	}
	u := newLink(device, reserveBasisPoints)
	if !config.In.Shared {
		return []*link{u}, nil
	}
	return []*link{u, us.incoming(u, config)}, nil
}

// addUplinks gives all containers shares of uplinks, and puts them into force. If one is refused after
// it was added, the caller removes the last uplinks.
func (a *Agent) addUplinks(list ...*link) error {
	for _, u := range list {
		u.index = len(a.uplinks.list)
		a.uplinks.list = append(a.uplinks.list, u)
		u.host = a.containers.host.addShare(u)
		for _, c := range a.containers.byKey {
			c.addShare(u)
		}
		a.advance(u)
		if !u.installed() {
			return u.device.Problem()
		}
		a.attach.CheckUplinks(a.uplinks.attachments(), time.Now())
		a.reconcile()
	}
	return nil
}

// at returns the uplink whose device has that index, or nil.
func (us *uplinks) at(ifindex int) *link {
	i := slices.IndexFunc(us.list, func(u *link) bool { return ifindex != 0 && u.device.Ifindex() == ifindex })
	if i < 0 {
		return nil
	}
	return us.list[i]
}

const (
	// followInterval is the time between two looks at the default route.
	followInterval = time.Second
	// maxHoldDown bounds the hold-down, and is the time without a move that ends it.
	maxHoldDown = time.Minute
)

// moved begins the hold-down after a move, twice as long as that after the move before: a VPN that comes and
// goes would have all shares made anew each time.
func (us *uplinks) moved(now time.Time) {
	us.holdDown = min(2*us.holdDown, maxHoldDown)
	if now.Sub(us.heldUntil) > maxHoldDown {
		us.holdDown = followInterval
	}
	us.heldUntil = now.Add(us.holdDown)
	us.defaultIndex = 0 // of a look before the move
}

// routeMoved reports whether the default route leads through another device than at the last look, if
// the uplink is the one that it leads through. Without a route all stays as it is.
func (us *uplinks) routeMoved(now time.Time) bool {
	auto := us.list[0].device.Config().Name == uplink.Auto // then it is the only one
	if !auto || now.Before(us.followFrom) || now.Before(us.heldUntil) {
		return false
	}
	us.followFrom = now.Add(followInterval)
	link, err := us.machine.DefaultLink()
	if err != nil || link.Index == us.defaultIndex {
		return false
	}
	us.defaultIndex = link.Index
	return true
}

// removeUplinks gives uplinks back. If one of them cannot be given back, all of them stay in force.
func (a *Agent) removeUplinks(list []*link) error {
	if err := a.uplinks.giveBack(list); err != nil {
		for _, u := range list {
			a.advance(u)
		}
		a.reconcile()
		return err
	}
	if len(list) == 0 {
		return nil
	}
	for _, u := range list {
		for _, c := range append(a.containers.all(), a.containers.host) {
			if c.earlier == nil {
				c.earlier = map[string]stats.Totals{}
			}
			c.earlier[u.device.Name()] = c.shares[u.index].totals
			c.shares = slices.Delete(c.shares, u.index, u.index+1)
		}
		a.uplinks.list = slices.Delete(a.uplinks.list, u.index, u.index+1)
		for i := range a.uplinks.list {
			a.uplinks.list[i].index = i
		}
		if u.of != nil {
			u.of.in = nil
		}
		u.device.Close()
		a.log.Info("the configuration names the uplink no longer", "uplink", u.label())
	}
	a.attach.CheckUplinks(a.uplinks.attachments(), time.Now())
	a.reconcile()
	return nil
}
