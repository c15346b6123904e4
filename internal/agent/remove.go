package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/weir-project/weir/internal/classify"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/sched/htb"
)

// remove gives the device back and forgets what was remembered of it.
func (u *uplink) remove() error {
	if !u.lost() {
		if err := u.giveBack(); err != nil {
			return err
		}
	}
	return u.store.remove()
}

// giveBack takes scheduler and classifier off the device and puts back the
// queueing that was there.
func (u *uplink) giveBack() error {
	err := errors.Join(classify.DetachUplink(u.ifindex), u.backend.Remove())
	if err == nil && len(u.store.state.Replaced) > 0 {
		err = u.tc.Restore(u.ifindex, u.store.state.Replaced)
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return fmt.Errorf("give %s back: %w", u.name, err)
	}
	return nil
}

// Remove does what Down does, without an agent, for every uplink that has a
// state file in stateDir, and for the device named uplink if that is not
// empty. It returns the names of the uplinks that were given back.
func Remove(stateDir, uplink string) ([]string, error) {
	if err := requireCapabilities(); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(statePath(stateDir, "*"))
	if err != nil {
		return nil, fmt.Errorf("look for state in %s: %w", stateDir, err)
	}
	names := map[string]bool{}
	if uplink != "" {
		names[uplink] = true
	}
	for _, file := range files {
		names[strings.TrimSuffix(filepath.Base(file), stateSuffix)] = true
	}
	var (
		done []string
		errs []error
	)
	for name := range names {
		removed, err := removeOne(stateDir, name)
		if err != nil {
			errs = append(errs, err)
		} else if removed {
			done = append(done, name)
		}
	}
	return done, errors.Join(errs...)
}

// removeOne gives one uplink back and reports whether there was anything to
// give.
func removeOne(stateDir, name string) (bool, error) {
	store, err := openStore(stateDir, name)
	if err != nil {
		return false, err
	}
	u := &uplink{name: name, store: store, replace: true}
	if u.tc, err = kernel.OpenTC(); err != nil {
		return false, err
	}
	defer u.close()
	link, err := kernel.LinkByName(name)
	switch {
	case errors.Is(err, kernel.ErrNoLink):
		if _, statErr := os.Stat(store.path); statErr != nil {
			return false, fmt.Errorf("there is no network device %q here", name)
		}
	case err != nil:
		return false, err
	default:
		if err := u.bind(link); err != nil {
			return false, err
		}
	}
	var errs []error
	for _, c := range store.state.Containers {
		errs = append(errs, undo(c.NetNSPath, c.Number, c.attachments()))
	}
	there := u.lost()
	if !there {
		qdiscs, err := u.tc.Qdiscs(u.ifindex)
		if err != nil {
			return false, err
		}
		there = htb.Owns(qdiscs) || len(store.last) > 0
	}
	errs = append(errs, u.remove())
	return there, errors.Join(errs...)
}
