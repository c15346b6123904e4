package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/share/policy"
)

// Requests through the agent's socket.

var (
	// ErrUnknown: no running container has this name or ID.
	ErrUnknown = errors.New("no such container")
	// ErrAmbiguous: several containers have this name or ID.
	ErrAmbiguous = errors.New("several containers match")
	// ErrRefused: the change is not possible. Nothing was changed.
	ErrRefused = errors.New("refused")
)

// Condition returns an error if a container must not be changed in its present state. No other
// change comes between the check and the change.
type Condition func(v1.Container) error

// findIf returns the container that matches name, after checking the conditions. Errors:
// ErrUnknown, ErrAmbiguous, those of the conditions.
func (a *Agent) findIf(name string, conditions []Condition) (*container, error) {
	c, err := a.containers.find(name)
	if err != nil {
		return nil, err
	}
	for _, condition := range conditions {
		if err := condition(c.view(a.containers.owners())); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// change changes the policy of the container that matches name, saves that and returns the container.
// An error of how leaves everything as it was. Errors: ErrUnknown, ErrAmbiguous, those of the
// conditions and of how.
func (a *Agent) change(ctx context.Context, name string, conditions []Condition, how func(*container) error) (view v1.Container, err error) {
	doErr := a.do(ctx, func() {
		var c *container
		if c, err = a.findIf(name, conditions); err != nil {
			return
		}
		if err = how(c); err != nil {
			return
		}
		a.reconcile()
		err = a.saveChange()
		view = c.view(a.containers.owners())
	})
	return view, errors.Join(doErr, err)
}

// Set changes the policy of a running container until the container stops. Errors: ErrUnknown,
// ErrAmbiguous, ErrRefused, those of the conditions.
func (a *Agent) Set(ctx context.Context, name string, change v1.PolicyChange, conditions ...Condition) (v1.Container, error) {
	return a.change(ctx, name, conditions, func(c *container) error {
		err := a.set(c, change)
		if err != nil {
			a.events.Add(v1.Event{
				At: time.Now(), Kind: v1.EventRefused, Container: c.Seen.Name, ID: c.Seen.ID, Runtime: c.Seen.Runtime, Message: strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "),
			})
		}
		return err
	})
}

func (a *Agent) set(c *container, change v1.PolicyChange) error {
	set, p, err := a.trialOf(c).try(change)
	if err != nil {
		return err
	}
	c.set = set
	a.containers.resolve(c)
	a.log.Info("policy set", "name", c.Seen.Name, "policy", p)
	return nil
}

// Reset drops all changes that Set made to a container's policy. Errors: ErrUnknown, ErrAmbiguous,
// those of the conditions.
func (a *Agent) Reset(ctx context.Context, name string, conditions ...Condition) (v1.Container, error) {
	return a.change(ctx, name, conditions, func(c *container) error {
		c.set = policy.Values{}
		a.containers.resolve(c)
		a.log.Info("policy reset", "name", c.Seen.Name)
		return nil
	})
}

// Down removes everything from the kernel, restores what was there before, and ends Run.
func (a *Agent) Down(ctx context.Context) error {
	var err error
	doErr := a.do(ctx, func() { err = a.down() })
	return errors.Join(doErr, err)
}

// saveSoon writes the state file, unless it was written several times recently; then a later turn
// of the control loop writes it. This bounds the writes while containers come and go.
func (a *Agent) saveSoon(now time.Time) {
	if !a.unsaved || now.Before(a.saveFrom) {
		return
	}
	if earliest := now.Add(-saveBurst * saveInterval); a.saveFrom.Before(earliest) {
		a.saveFrom = earliest
	}
	a.saveFrom = a.saveFrom.Add(saveInterval)
	if err := a.save(); err != nil {
		a.log.Error("save the agent's state", "error", err)
	}
}

// saveChange saves a user's change, which only the state file holds.
func (a *Agent) saveChange() error {
	if err := a.save(); err != nil {
		return fmt.Errorf("the change is in force, but could not be saved: a restart of the agent loses it; make room or mend the disk, and ask again: %w", err)
	}
	return nil
}

// save writes the data that neither the kernel nor a source has.
func (a *Agent) save() error {
	containers := make([]state.Container, 0, len(a.containers.byKey))
	for _, c := range a.containers.all() {
		s := state.Container{
			ID: c.Seen.ID, Name: c.Seen.Name, Runtime: c.Seen.Runtime, Labels: c.Seen.Labels,
			NetNSPath: c.Seen.NetNSPath, Interface: c.Seen.Interface, StartedAt: c.Seen.StartedAt,
			Number: c.Number, Set: savedSet(c.set), CgroupPath: c.Seen.CgroupPath,
			HostNetwork: c.Seen.HostNetwork, SharesNetwork: c.Seen.SharesNetworkOf,
			Image: c.Seen.Image, ImageLabels: c.Seen.ImageLabels, ImageUnknown: c.Seen.ImageUnknown,
			Attached: savedDevices(c.Devices),
		}
		for _, share := range c.shares {
			if share.admittedBPS > 0 {
				if s.AdmittedBPS == nil {
					s.AdmittedBPS = map[string]uint64{}
				}
				s.AdmittedBPS[share.uplink.device.Name()] = share.admittedBPS
			}
			if share.totals != (stats.Totals{}) {
				if s.Counted == nil {
					s.Counted = map[string]state.Counted{}
				}
				s.Counted[share.uplink.device.Name()] = savedCounted(share)
			}
		}
		containers = append(containers, s)
	}
	for _, u := range a.uplinks.list {
		if u.installed() {
			counted := savedCounted(u.host)
			saved := a.store.Uplink(u.device.Name(), u.device.Ifindex())
			saved.Host, saved.HostAdmittedBPS = &counted, u.host.admittedBPS
		}
	}
	a.store.Containers = containers
	a.unsaved = false
	if err := a.store.Save(); err != nil {
		return err
	}
	a.attach.LimitSaved(a.containers.attached())
	return nil
}

// hasSource reports whether a source of that name is configured.
func (cs *containers) hasSource(name string) bool {
	return slices.Contains(cs.asked, name)
}

// recall restores the containers of an earlier agent, so that their classes stay until their source
// has reported what runs.
func (a *Agent) recall() {
	for _, saved := range a.store.Uplinks {
		for _, u := range a.uplinks.list {
			if u.device.Name() == saved.Name && saved.Host != nil {
				u.host.admittedBPS = saved.HostAdmittedBPS
				recallCounted(u.host, *saved.Host)
			}
		}
	}
	for _, s := range a.store.Containers {
		c := &container{
			Container: attach.Container{Seen: discovery.Container{
				ID: s.ID, Name: s.Name, Runtime: s.Runtime, Labels: s.Labels,
				NetNSPath: s.NetNSPath, Interface: s.Interface, StartedAt: s.StartedAt,
				CgroupPath: s.CgroupPath, HostNetwork: s.HostNetwork, SharesNetworkOf: s.SharesNetwork,
				Image: s.Image, ImageLabels: s.ImageLabels, ImageUnknown: s.ImageUnknown,
			}},
		}
		a.containers.addShares(c)
		c.Devices = recalledDevices(s.Attached)
		c.set = recalledSet(s.Set)
		a.containers.resolve(c)
		a.containers.byKey[c.key()] = c
		if !a.containers.claim(c, s.Number) {
			continue
		}
		for _, share := range c.shares {
			share.admittedBPS = s.AdmittedBPS[share.uplink.device.Name()]
			recallCounted(share, s.Counted[share.uplink.device.Name()])
		}
	}
	for _, c := range a.containers.all() {
		if a.containers.hasSource(c.Seen.Runtime) {
			a.containers.inspect(c)
		}
	}
}

// dropLeftovers forgets the containers of sources that are no longer configured, because no event
// would report their end. It undoes the earlier agent's changes to them, as their numbers will be
// reused. Call it when the uplinks have their classifiers.
func (cs *containers) dropLeftovers() {
	for _, c := range cs.all() {
		if cs.hasSource(c.Seen.Runtime) {
			continue
		}
		cs.log.Info("no configured source reports this container any more; it is no longer controlled", "name", c.Seen.Name, "runtime", c.Seen.Runtime)
		cs.forget(c)
	}
}
