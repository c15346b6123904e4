package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/discovery"
	"github.com/weir-project/weir/internal/policy"
	"github.com/weir-project/weir/internal/state"
	"github.com/weir-project/weir/internal/stats"
)

// What users ask of the agent through its socket.

var (
	// ErrUnknown is a name or ID that no running container has.
	ErrUnknown = errors.New("no such container")
	// ErrAmbiguous is a name or ID that several containers have.
	ErrAmbiguous = errors.New("several containers match")
	// ErrRefused is a change that cannot be made. Nothing was changed.
	ErrRefused = errors.New("refused")
)

// Condition says what is wrong with changing a container as it is now; nil for
// nothing. Between it and the change nobody else changes anything.
type Condition func(v1.Container) error

// findIf looks a container up and asks the conditions. Errors: ErrUnknown,
// ErrAmbiguous, that of a condition.
func (a *Agent) findIf(name string, conditions []Condition) (*container, error) {
	c, err := a.find(name)
	if err != nil {
		return nil, err
	}
	for _, condition := range conditions {
		if err := condition(a.view(c)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Set changes the policy of a running container until it stops. Errors:
// ErrUnknown, ErrAmbiguous, ErrRefused, that of a condition.
func (a *Agent) Set(ctx context.Context, name string, change v1.PolicyChange, conditions ...Condition) (v1.Container, error) {
	var (
		view v1.Container
		err  error
	)
	doErr := a.do(ctx, func() {
		var c *container
		if c, err = a.findIf(name, conditions); err != nil {
			return
		}
		if err = a.set(c, change); err != nil {
			a.events.Add(v1.Event{
				At: time.Now(), Kind: v1.EventRefused, Container: c.Name, ID: c.ID, Runtime: c.Runtime, Message: strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "),
			})
			return
		}
		a.reconcile()
		err = a.saveChange()
		view = a.view(c)
	})
	return view, errors.Join(doErr, err)
}

func (a *Agent) set(c *container, change v1.PolicyChange) error {
	set, p, err := a.trialOf(c).try(change)
	if err != nil {
		return err
	}
	c.set = set
	a.resolve(c)
	a.log.Info("policy set", "name", c.Name, "policy", p)
	return nil
}

// Reset goes back to the policy of the container's labels. Errors:
// ErrUnknown, ErrAmbiguous, that of a condition.
func (a *Agent) Reset(ctx context.Context, name string, conditions ...Condition) (v1.Container, error) {
	var (
		view v1.Container
		err  error
	)
	doErr := a.do(ctx, func() {
		var c *container
		if c, err = a.findIf(name, conditions); err != nil {
			return
		}
		c.set = policy.Values{}
		a.resolve(c)
		a.log.Info("policy reset", "name", c.Name)
		a.reconcile()
		err = a.saveChange()
		view = a.view(c)
	})
	return view, errors.Join(doErr, err)
}

// Down takes everything out of the kernel, puts back what was there before,
// and ends Run.
func (a *Agent) Down(ctx context.Context) error {
	var err error
	doErr := a.do(ctx, func() { err = a.down() })
	return errors.Join(doErr, err)
}

// saveSoon writes the state file, unless it was written several times lately:
// while containers come and go all the time, a later turn of the control loop
// does it.
func (a *Agent) saveSoon(now time.Time) {
	if !a.unsaved || now.Before(a.saveFrom) {
		return
	}
	if earliest := now.Add(-saveBurst * saveInterval); a.saveFrom.Before(earliest) {
		a.saveFrom = earliest
	}
	a.saveFrom = a.saveFrom.Add(saveInterval)
	if err := a.save(); err != nil {
		a.log.Error("keep the agent's state", "error", err)
	}
}

// saveChange saves what a user changed, which nothing else remembers.
func (a *Agent) saveChange() error {
	if err := a.save(); err != nil {
		return fmt.Errorf("the change is in force, but could not be saved: a restart of the agent loses it; make room or mend the disk, and ask again: %w", err)
	}
	return nil
}

// save keeps what neither the kernel nor a source knows.
func (a *Agent) save() error {
	containers := make([]state.Container, 0, len(a.registry.byKey))
	for _, c := range a.registry.all() {
		s := state.Container{
			ID: c.ID, Name: c.Name, Runtime: c.Runtime, Labels: c.Labels,
			NetNSPath: c.NetNSPath, Interface: c.Interface, StartedAt: c.StartedAt,
			Number: c.number, Set: savedSet(c.set), CgroupPath: c.CgroupPath,
			HostNetwork: c.HostNetwork, SharesNetwork: c.SharesNetworkOf,
			Image: c.Image, ImageLabels: c.ImageLabels, ImageUnknown: c.ImageUnknown,
			Attached: savedAttachments(c.attachments),
		}
		for _, share := range c.shares {
			if share.admittedBPS > 0 {
				if s.AdmittedBPS == nil {
					s.AdmittedBPS = map[string]uint64{}
				}
				s.AdmittedBPS[share.uplink.name] = share.admittedBPS
			}
			if share.totals != (stats.Totals{}) {
				if s.Counted == nil {
					s.Counted = map[string]state.Counted{}
				}
				s.Counted[share.uplink.name] = savedCounted(share)
			}
		}
		containers = append(containers, s)
	}
	for _, u := range a.uplinks {
		if u.installed() {
			counted := savedCounted(u.host)
			saved := a.store.Uplink(u.name, u.device.Ifindex())
			saved.Host, saved.HostAdmittedBPS = &counted, u.host.admittedBPS
		}
	}
	a.store.Containers = containers
	a.unsaved = false
	if err := a.store.Save(); err != nil {
		return err
	}
	a.limitSaved()
	return nil
}

// hasSource says whether containers are learned of from that source, or may be
// later.
func (a *Agent) hasSource(name string) bool {
	return slices.ContainsFunc(a.config.Sources, func(s discovery.Source) bool { return s.Name() == name })
}

// recall takes up the containers that an earlier agent knew, so that their
// classes stay until their source has said who runs.
func (a *Agent) recall() {
	for _, saved := range a.store.Uplinks {
		for _, u := range a.uplinks {
			if u.name == saved.Name && saved.Host != nil {
				u.host.admittedBPS = saved.HostAdmittedBPS
				recallCounted(u.host, *saved.Host, true)
			}
		}
	}
	var renumbered []*container
	for _, s := range a.store.Containers {
		c := &container{
			Container: discovery.Container{
				ID: s.ID, Name: s.Name, Runtime: s.Runtime, Labels: s.Labels,
				NetNSPath: s.NetNSPath, Interface: s.Interface, StartedAt: s.StartedAt,
				CgroupPath: s.CgroupPath, HostNetwork: s.HostNetwork, SharesNetworkOf: s.SharesNetwork,
				Image: s.Image, ImageLabels: s.ImageLabels, ImageUnknown: s.ImageUnknown,
			},
		}
		a.addShares(c)
		c.attachments = recalledAttachments(s.Attached)
		c.set = recalledSet(s.Set)
		a.resolve(c)
		a.registry.byKey[c.key()] = c
		if s.Number == 0 {
			continue
		}
		kept := a.registry.take(c, s.Number)
		for _, share := range c.shares {
			share.admittedBPS = s.AdmittedBPS[share.uplink.name]
			recallCounted(share, s.Counted[share.uplink.name], kept)
		}
		if !kept {
			renumbered = append(renumbered, c)
		}
	}
	a.renumber(renumbered)
	for _, c := range a.registry.all() {
		if a.hasSource(c.Runtime) {
			a.inspect(c)
		}
	}
}

// renumber gives containers other numbers than they had with an earlier agent, as those
// are none any more: before Weir had traffic classes numbers had two bits more, which a
// classifier of today takes for a class of another's packets. So their taps have to say
// the new number before that is attached. Until their classes are there, with the first
// reconciliation, their packets are the host's.
func (a *Agent) renumber(list []*container) {
	for _, c := range list {
		a.number(c, 0)
		a.log.Info("container has another number than with the Weir before", "name", c.Name)
		for i := range c.attachments {
			a.assignDevice(c, &c.attachments[i])
		}
	}
}

// dropLeftovers forgets the containers of sources that are not asked any more, of
// which nobody would ever say that they are gone. What an earlier agent did to
// them is undone, as their numbers will be others'. To be called when the uplinks
// have their classifiers.
func (a *Agent) dropLeftovers() {
	for _, c := range a.registry.all() {
		if a.hasSource(c.Runtime) {
			continue
		}
		for _, s := range c.shares {
			s.cgroupAssigned = true // perhaps; the kernel knows
		}
		a.log.Info("no source tells of a container any more; it is not controlled from now on", "name", c.Name, "runtime", c.Runtime)
		a.forget(c)
	}
}
