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
		us.log.Info("uplink given back", "uplink", u.label())
	}
	return errors.Join(errs...)
}

// Remove does what Down does without an agent, for every uplink in the state file of stateDir, and
// for device unless that is "". What the state file does not name is found by what Weir calls it. It
// says in sentences what it removed.
func Remove(stateDir, device string) (done []string, err error) {
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
	machine, err := uplink.OpenHost(nil)
	if err != nil {
		return nil, err
	}
	defer machine.Close()
	// Keyed by name; true if the state file has an entry.
	uplinks := map[string]bool{}
	found, findErr := uplink.Find(machine)
	for name, link := range found {
		if store.NameOf(link.Index) == "" {
			uplinks[name] = false
		}
	}
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
	errs := []error{findErr}
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
	taps, err := identity.DetachTaps()
	errs = append(errs, err, identity.DetachRedirects(), identity.DetachBridges(), (&identity.QueueTags{}).Detach(), identity.DetachCarriers(nil))
	unknown := taps > 0
	for _, name := range slices.Sorted(maps.Keys(uplinks)) {
		_, err := uplink.GiveBack(name, machine, store)
		switch link, there := found[name]; {
		case err != nil:
			errs = append(errs, err)
		case link.Kind == kernel.KindIFB:
			done = append(done, name+" removed")
		case uplinks[name]:
			done = append(done, name+" given back")
		case there:
			unknown = true
			done = append(done, fmt.Sprintf("%s given back, but %s has no record of its state before Weir: neither queueing nor packet limit (gso_max_size) are put back", name, stateDir))
		}
	}
	if taps > 0 {
		done = append(done, fmt.Sprintf("programs removed from the devices of %d containers", taps))
	}
	if unknown {
		done = append(done, "programs at cgroups and in namespaces of containers, and packet limits there, end with these containers; "+
			"`weir down --state-dir` with the folder that the agent had removes them, too")
	}
	if err := errors.Join(errs...); err != nil {
		return done, err
	}
	return done, store.Remove()
}
