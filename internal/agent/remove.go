package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched/htb"
	"github.com/weir-project/weir/internal/state"
)

// remove gives the device back and forgets what was remembered of it.
func (u *uplink) remove() error {
	if !u.lost() {
		if err := u.giveBack(); err != nil {
			return err
		}
	}
	u.store.Forget(u.name)
	return nil
}

// giveBack takes scheduler and classifier off the device and puts back the
// queueing and the packet limit that were there.
func (u *uplink) giveBack() error {
	saved := u.store.Uplink(u.name)
	err := errors.Join(identity.DetachUplink(u.ifindex), u.backend.Remove())
	if err == nil && len(saved.Replaced) > 0 {
		err = u.tc.Restore(u.ifindex, recalledQueueing(saved.Replaced))
	}
	if err == nil && saved.GSOMaxBytes > 0 {
		err = kernel.SetGSOMaxBytes(u.ifindex, saved.GSOMaxBytes)
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return fmt.Errorf("give %s back: %w", u.name, err)
	}
	return nil
}

// Remove does what Down does, without an agent, for every uplink that the
// state file in stateDir names, and for the device named uplink if that is not
// empty. It returns the names of the uplinks that were given back.
func Remove(stateDir, uplink string) ([]string, error) {
	if err := requireCapabilities(); err != nil {
		return nil, err
	}
	lock, err := lockNetNS(lockDir)
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
	if uplink != "" {
		uplinks[uplink] = false
	}
	for _, u := range store.Uplinks {
		uplinks[u.Name] = true
	}
	if uplink != "" && !uplinks[uplink] {
		if _, err := kernel.LinkByName(uplink); errors.Is(err, kernel.ErrNoLink) {
			return nil, fmt.Errorf("there is no network device %q here", uplink)
		}
	}
	var errs []error
	for _, c := range store.Containers {
		errs = append(errs, undo(c.NetNSPath, c.Number, recalledAttachments(c.Attached)))
	}
	var done []string
	for _, name := range slices.Sorted(maps.Keys(uplinks)) {
		there, err := removeUplink(store, name)
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

// removeUplink gives one uplink back and reports whether anything of ours was
// on it.
func removeUplink(store *state.Store, name string) (bool, error) {
	u, err := newUplink(0, UplinkConfig{Name: name, Replace: true}, 0, store)
	if err != nil {
		return false, err
	}
	defer u.close()
	link, err := kernel.LinkByName(name)
	switch {
	case errors.Is(err, kernel.ErrNoLink):
		return false, u.remove()
	case err != nil:
		return false, err
	}
	if err := u.bind(link); err != nil {
		return false, err
	}
	qdiscs, err := u.tc.Qdiscs(u.ifindex)
	if err != nil {
		return false, err
	}
	return htb.Owns(qdiscs), u.remove()
}
