package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// down undoes everything, the uplinks first: if one of them cannot be given back, everything stays
// in force.
func (a *Agent) down() error {
	err := a.uplinks.giveBack(a.uplinks.list)
	if err == nil {
		for _, c := range a.containers.byKey {
			a.containers.release(c)
		}
		err = errors.Join(a.attach.Remove(), a.store.Remove())
	}
	if err != nil {
		a.containers.inspectAll()
		for _, u := range a.uplinks.list {
			a.advance(u)
		}
		a.reconcile()
		return fmt.Errorf("%w; Weir stays in force", err)
	}
	a.removed = true
	return nil
}

// giveBack restores uplinks to their state before Weir.
func (us *uplinks) giveBack(list []*link) error {
	var errs []error
	for _, u := range list {
		err := u.device.GiveBack()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		us.log.Info("uplink given back", "uplink", u.device.Name())
	}
	return errors.Join(errs...)
}

// Remove does what Down does without an agent, for every uplink in the state file of stateDir, and
// for device unless that is "". It returns the names of the restored uplinks.
func Remove(stateDir, device string) ([]string, error) {
	if err := requireCapabilities(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(stateDir); errors.Is(err, fs.ErrNotExist) {
		defer func() { _ = os.Remove(stateDir) }() // the lock creates the directory
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
	// Keyed by name; true if the state file has an entry.
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
		errs = append(errs, attach.Undo(c.NetNSPath, c.Number, recalledDevices(c.Attached)))
		if c.CgroupPath == "" {
			continue
		}
		for _, detach := range []func(path string) error{identity.DetachCgroup, identity.Bypass{}.Allow} {
			if err := detach(c.CgroupPath); !errors.Is(err, kernel.ErrNoCgroup) {
				errs = append(errs, err)
			}
		}
	}
	errs = append(errs, identity.DetachRedirects(), identity.DetachBridges(), (&identity.QueueTags{}).Detach())
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
