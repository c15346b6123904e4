package agent

import (
	"errors"
	"slices"

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
	a.origins.watcher.Close()
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
		s := &share{container: c, uplink: u}
		c.shares = append(c.shares, s)
		if c == a.host {
			u.host = s
		}
	}
}
