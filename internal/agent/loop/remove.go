package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/uplink"
)

// down gives everything back, the uplinks first: if one cannot be given back, all
// of it stays in force.
func (a *Agent) down() error {
	err := a.giveBack(a.uplinks)
	if err == nil {
		for _, c := range a.registry.byKey {
			a.release(c)
		}
		err = errors.Join(a.bridges.keeper.Detach(nil), a.store.Remove())
	}
	if err != nil {
		a.bridges.unchecked = true
		a.inspectAll()
		for _, u := range a.uplinks {
			a.advance(u)
		}
		a.reconcile()
		return fmt.Errorf("%w; Weir stays in force", err)
	}
	a.removed = true
	return nil
}

// giveBack makes uplinks what they were before.
func (a *Agent) giveBack(list []*link) error {
	var errs []error
	for _, u := range list {
		err := u.device.GiveBack()
		u.take()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.log.Info("uplink given back", "uplink", u.name)
	}
	return errors.Join(errs...)
}

// Remove does what Down does, without an agent, for every uplink that the
// state file in stateDir names, and for device if that is not
// empty. It returns the names of the uplinks that were given back.
func Remove(stateDir, device string) ([]string, error) {
	if err := requireCapabilities(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(stateDir); errors.Is(err, fs.ErrNotExist) {
		defer func() { _ = os.Remove(stateDir) }() // which the lock makes
	}
	lock, err := lockAgent(lockDir, stateDir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	store, err := state.Open(stateDir)
	if err != nil {
		return nil, err
	}
	// By name; true where something is remembered of it.
	uplinks := map[string]bool{}
	if device != "" {
		uplinks[device] = false
	}
	for _, u := range store.Uplinks {
		uplinks[u.Name] = true
	}
	if device != "" && !uplinks[device] {
		if _, err := kernel.LinkByName(device); errors.Is(err, kernel.ErrNoLink) {
			return nil, fmt.Errorf("there is no network device %q here", device)
		}
	}
	machine, err := uplink.OpenHost(nil)
	if err != nil {
		return nil, err
	}
	defer machine.Close()
	var errs []error
	for _, c := range store.Containers {
		errs = append(errs, undo(c.NetNSPath, c.Number, recalledAttachments(c.Attached)))
		if c.CgroupPath == "" {
			continue
		}
		if err := identity.DetachCgroup(c.CgroupPath); !errors.Is(err, kernel.ErrNoCgroup) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, identity.DetachBridges())
	var done []string
	for _, name := range slices.Sorted(maps.Keys(uplinks)) {
		there, err := uplink.GiveBack(name, machine, store)
		if err != nil {
			errs = append(errs, err)
		} else if there || uplinks[name] {
			done = append(done, name)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return done, err
	}
	return done, store.Remove()
}
