package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/uplink"
)

// Which uplinks there are: those of the configuration, as it is now.

// openUplinks claims the uplinks. One of several may be missing: it is shared
// out when it comes.
func (a *Agent) openUplinks() error {
	var missing []error
	for i, config := range a.config.Uplinks {
		device := uplink.New(config, a.machine, a.store)
		problem := device.Claim()
		a.uplinks = append(a.uplinks, newLink(i, device, a.config.ReserveBasisPoints))
		switch {
		case problem == nil:
		case problem.Kind == uplink.Missing:
			missing = append(missing, problem)
		default:
			return problem
		}
	}
	if len(missing) == len(a.uplinks) {
		return errors.Join(missing...)
	}
	for _, err := range missing {
		a.log.Error("uplink is not there; waiting for it", "error", err)
	}
	return nil
}

func (a *Agent) closeUplinks() {
	for _, u := range a.uplinks {
		u.device.Close()
	}
	a.machine.Close()
	a.origins.Close()
	a.bridges.keeper.Close()
	if a.flows != nil {
		a.flows.Close()
	}
}

// dropUplinks gives back the uplinks of an earlier agent that are no longer
// wanted.
func (a *Agent) dropUplinks() error {
	var names []string
	for _, saved := range a.store.Uplinks {
		names = append(names, saved.Name)
	}
	for _, name := range names {
		wanted := slices.ContainsFunc(a.uplinks, func(u *link) bool { return u.name == name })
		if wanted {
			continue
		}
		if _, err := uplink.GiveBack(name, a.machine, a.store); err != nil {
			return err
		}
		a.log.Info("uplink given back: the configuration no longer names it", "uplink", name)
	}
	return nil
}

// addShares gives a container its share of every uplink.
func (a *Agent) addShares(c *container) {
	for _, u := range a.uplinks {
		s := c.addShare(u)
		if c == a.host {
			u.host = s
		}
	}
}

// addShare gives a container its share of the uplink that comes after those that it
// has one of.
func (c *container) addShare(u *link) *share {
	s := &share{container: c, uplink: u}
	c.shares = append(c.shares, s)
	return s
}

// addUplink shares out one more uplink, which has to be there. One that was added
// and is refused after that is the last, to be removed.
func (a *Agent) addUplink(config UplinkConfig, reserveBasisPoints uint32) error {
	device := uplink.New(config, a.machine, a.store)
	problem := device.Claim()
	if taken := a.uplinkAt(device.Ifindex()); taken != nil {
		return fmt.Errorf("%s is %s, which is shared out already: name it once, and restart the agent if it is to go by the other name", config.Name, taken.name)
	}
	if problem != nil {
		a.store.Forget(device.Name()) // nothing was changed
		return problem
	}
	u := newLink(len(a.uplinks), device, reserveBasisPoints)
	a.uplinks = append(a.uplinks, u)
	u.host = a.host.addShare(u)
	for _, c := range a.registry.byKey {
		c.addShare(u)
	}
	a.advance(u)
	if !u.installed() {
		return u.reason
	}
	a.lookAround()
	a.reconcile()
	return nil
}

// uplinkAt is the uplink whose device has that index, if it is there.
func (a *Agent) uplinkAt(ifindex int) *link {
	i := slices.IndexFunc(a.uplinks, func(u *link) bool { return ifindex != 0 && u.device.Ifindex() == ifindex })
	if i < 0 {
		return nil
	}
	return a.uplinks[i]
}

// removeUplinks gives uplinks back. If one of them cannot be given back, all of them
// stay in force.
func (a *Agent) removeUplinks(list []*link) error {
	if err := a.giveBack(list); err != nil {
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
		for _, c := range append(a.registry.all(), a.host) {
			c.shares = slices.Delete(c.shares, u.index, u.index+1)
		}
		a.uplinks = slices.Delete(a.uplinks, u.index, u.index+1)
		for i := range a.uplinks {
			a.uplinks[i].index = i
		}
		u.device.Close()
		a.log.Info("the configuration names the uplink no longer", "uplink", u.name)
	}
	a.lookAround()
	a.reconcile()
	return nil
}

// lookAround looks for what of others is around the uplinks.
func (a *Agent) lookAround() {
	a.tunnelsFrom = time.Time{}
	a.checkTunnels(time.Now())
	a.checkFollowers()
}
