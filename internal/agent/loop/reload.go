package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/flows"
	"github.com/weir-project/weir/internal/policy"
)

// Settings are what of a Config may change while the agent runs.
type Settings struct {
	// Uplinks are at least one.
	Uplinks            []UplinkConfig
	ReserveBasisPoints uint32
	Host               v1.Policy
	Rules              policy.Rules
	Classifier         flows.Choice
}

// Reload reads the settings again and puts them into force: all of them, or, with
// an error, none. Classes and queues are changed in place, so that no packet is
// lost, but for what waits at an uplink that is given back. Errors: ErrRefused.
func (a *Agent) Reload(ctx context.Context) error {
	if a.config.Reload == nil {
		return fmt.Errorf("%w: this agent has no config file to read again", ErrRefused)
	}
	settings, err := a.config.Reload()
	if err != nil {
		err = fmt.Errorf("%w: the configuration stays as it was: %w", ErrRefused, err)
		a.log.Error("read the configuration again", "error", err)
		return err
	}
	doErr := a.do(ctx, func() { err = a.takeSettings(settings) })
	return errors.Join(doErr, err)
}

func (a *Agent) takeSettings(settings Settings) error {
	undo, err := a.takeClassifier(settings.Classifier)
	var kept map[*link]UplinkConfig
	if err == nil {
		if kept, err = a.takeUplinks(settings); err != nil {
			undo()
		}
	}
	if err != nil {
		err = fmt.Errorf("%w: the configuration stays as it was: %w", ErrRefused, err)
		a.log.Error("read the configuration again", "error", err)
		return err
	}
	a.host.resolved = hostResolution(settings.Host)
	a.config.Rules = settings.Rules
	for _, c := range a.registry.byKey {
		a.resolve(c)
	}
	for u, config := range kept {
		beforeBPS := u.rateBPS
		u.reserveBasisPoints = settings.ReserveBasisPoints
		u.device.Configure(config)
		a.advance(u)
		if u.rateBPS != beforeBPS {
			a.log.Info("the uplink has another rate", "uplink", u.name, "rate_bps", u.rateBPS, "before_bps", beforeBPS)
		}
	}
	a.reconcile()
	a.log.Info("configuration read again")
	return a.save()
}

// takeUplinks shares out the uplinks that settings name, and no others. It returns
// those that were there before, with what they are to be. With an error all is as it
// was: new ones come first, and those that are not named any more go last, so that
// nobody has been without control when one of them is refused.
func (a *Agent) takeUplinks(settings Settings) (map[*link]UplinkConfig, error) {
	change, err := a.compareUplinks(settings.Uplinks)
	if err != nil {
		return nil, err
	}
	before := len(a.uplinks)
	for _, config := range change.added {
		if err = a.addUplink(config, settings.ReserveBasisPoints); err != nil {
			break
		}
	}
	if err == nil {
		err = a.removeUplinks(change.removed)
	}
	if err != nil {
		return nil, errors.Join(err, a.removeUplinks(slices.Clone(a.uplinks[before:])))
	}
	return change.kept, nil
}

// uplinkChange is what another list of uplinks asks for.
type uplinkChange struct {
	kept    map[*link]UplinkConfig
	added   []UplinkConfig
	removed []*link
}

// compareUplinks finds the uplinks that list names, by the names that they are
// configured with, or else by those that they have now. Those that stay must be able
// to be what is configured.
func (a *Agent) compareUplinks(list []UplinkConfig) (uplinkChange, error) {
	if len(list) == 0 {
		return uplinkChange{}, errors.New("it names no uplink: `weir down` gives all of them back")
	}
	change := uplinkChange{kept: map[*link]UplinkConfig{}}
	for _, config := range list {
		u := a.uplinkNamed(config.Name)
		if u == nil {
			change.added = append(change.added, config)
			continue
		}
		if other, twice := change.kept[u]; twice {
			return uplinkChange{}, fmt.Errorf("it names %s twice, as %s and as %s", u.name, other.Name, config.Name)
		}
		if err := u.device.Check(config); err != nil {
			return uplinkChange{}, err
		}
		change.kept[u] = config
	}
	for _, u := range a.uplinks {
		if _, stays := change.kept[u]; !stays {
			change.removed = append(change.removed, u)
		}
	}
	return change, nil
}

func (a *Agent) uplinkNamed(name string) *link {
	for _, is := range []func(u *link) bool{
		func(u *link) bool { return u.device.Config().Name == name },
		func(u *link) bool { return u.name == name },
	} {
		if i := slices.IndexFunc(a.uplinks, is); i >= 0 {
			return a.uplinks[i]
		}
	}
	return nil
}
