package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/share/policy"
)

// Settings are the parts of a Config that may change while the agent runs.
type Settings struct {
	// Uplinks has at least one entry.
	Uplinks            []UplinkConfig
	ReserveBasisPoints uint32
	Host, HostIn       v1.Policy
	Rules              policy.Rules
	IgnoreDefaultRoute bool
	Classifier         flows.Choice
}

// Reload reads the settings again and applies all of them or, with an error, none. Classes and
// queues are changed in place: no packet is lost, except those queued at an uplink that is given
// back. It returns what changed. Errors: ErrRefused.
func (a *Agent) Reload(ctx context.Context) (v1.Reloaded, error) {
	if a.config.Reload == nil {
		return v1.Reloaded{}, fmt.Errorf("%w: this agent has no config file to read again", ErrRefused)
	}
	var done v1.Reloaded
	settings, err := a.config.Reload()
	doErr := a.do(ctx, func() {
		if err == nil {
			done.Changes, err = a.takeSettings(settings)
		}
		if err != nil {
			a.events.Add(v1.Event{At: time.Now(), Kind: v1.EventReloadRefused, Message: err.Error()})
			err = fmt.Errorf("%w: the configuration stays as it was: %w", ErrRefused, err)
			a.log.Error("cannot read the configuration again", "error", err)
		}
	})
	return done, errors.Join(doErr, err)
}

// takeSettings applies settings and returns what changed, nothing with an error.
func (a *Agent) takeSettings(settings Settings) (changes []string, err error) {
	before := a.config.Classifier
	undo, err := a.takeClassifier(settings.Classifier)
	var kept map[*link]UplinkConfig
	if err == nil {
		if kept, changes, err = a.takeUplinks(settings); err != nil {
			undo()
		}
	}
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(a.config.Classifier, before) {
		changes = append(changes, "the classifier")
	}
	if host := a.containers.host.resolved; host.Policy != settings.Host || host.In != settings.HostIn {
		changes = append(changes, "the policy of the host")
	}
	if !reflect.DeepEqual(a.containers.rules, settings.Rules) {
		changes = append(changes, "defaults, limits or policies of containers")
	}
	if a.attach.IgnoreDefaultRoute != settings.IgnoreDefaultRoute {
		changes = append(changes, "ignore_default_route")
		a.attach.IgnoreDefaultRoute = settings.IgnoreDefaultRoute
		a.attach.CheckUplinks(a.uplinks.attachments(), time.Now())
	}
	a.containers.host.resolved = hostResolution(settings.Host, settings.HostIn)
	a.containers.rules = settings.Rules
	for _, c := range a.containers.byKey {
		a.containers.resolve(c)
	}
	for u, config := range kept {
		before, beforeBPS := u.device.Config(), u.device.RateBPS()
		if u.reserveBasisPoints != settings.ReserveBasisPoints || before.Replace != config.Replace || before.IgnoreLinkSpeed != config.IgnoreLinkSpeed || before.In.Force != config.In.Force || cmp.Or(before.Precision, v1.PrecisionExact) != cmp.Or(config.Precision, v1.PrecisionExact) {
			changes = append(changes, u.device.Name()+": reserve, precision, replace, in_force or ignore_link_speed")
		}
		u.reserveBasisPoints = settings.ReserveBasisPoints
		u.device.Configure(config)
		a.advance(u)
		if in := u.in; in != nil {
			beforeBPS := in.device.RateBPS()
			in.reserveBasisPoints = settings.ReserveBasisPoints
			in.device.Configure(config.Incoming(u.device.Name()))
			a.advance(in)
			if in.device.RateBPS() != beforeBPS {
				changes = append(changes, fmt.Sprintf("%s: in_rate %s instead of %s", u.device.Name(), policy.FormatRate(in.device.RateBPS()), policy.FormatRate(beforeBPS)))
			}
		}
		if u.device.RateBPS() != beforeBPS {
			changes = append(changes, fmt.Sprintf("%s: rate %s instead of %s", u.device.Name(), policy.FormatRate(u.device.RateBPS()), policy.FormatRate(beforeBPS)))
		}
	}
	a.reconcile()
	if len(changes) == 0 {
		changes = []string{"nothing"}
	}
	slices.Sort(changes)
	a.log.Info("configuration read again", "changed", changes)
	a.events.Add(v1.Event{At: time.Now(), Kind: v1.EventReloaded, Message: "changed: " + strings.Join(changes, "; ")})
	if err := a.save(); err != nil {
		a.unsaved = true // it is in force, and saved later
		a.log.Error("cannot save the agent's state", "error", err)
	}
	return changes, nil
}

// takeUplinks changes the set of shared uplinks to the one in settings. It returns the uplinks that
// stay, with their new configurations, and what changed. An error leaves everything as it was: new uplinks are added
// first and unnamed ones removed last, so that no container loses control when one of them is
// refused.
func (a *Agent) takeUplinks(settings Settings) (kept map[*link]UplinkConfig, changes []string, err error) {
	change, err := a.uplinks.compare(settings.Uplinks)
	if err != nil {
		return nil, nil, err
	}
	before := len(a.uplinks.list)
	for _, config := range change.added {
		var list []*link
		if list, err = a.uplinks.claim(config, settings.ReserveBasisPoints); err == nil {
			err = a.addUplinks(list...)
		}
		if err != nil {
			break
		}
		changes = append(changes, config.Name+": a new uplink")
	}
	for _, u := range change.startIn {
		if err == nil {
			err = a.addUplinks(a.uplinks.incoming(u, change.kept[u]))
			changes = append(changes, u.device.Name()+": received traffic is shared")
		}
	}
	for _, u := range change.removed {
		if u.of == nil {
			changes = append(changes, u.device.Name()+": given back")
		} else {
			changes = append(changes, u.name()+": received traffic is not shared any more")
		}
	}
	if err == nil {
		err = a.removeUplinks(change.removed)
	}
	if err != nil {
		return nil, nil, errors.Join(err, a.removeUplinks(slices.Clone(a.uplinks.list[before:])))
	}
	return change.kept, changes, nil
}

// uplinkChange is the difference between the shared uplinks and a new list.
type uplinkChange struct {
	kept    map[*link]UplinkConfig
	added   []UplinkConfig
	removed []*link
	// startIn are the uplinks that stay and whose received packets are shared from now on.
	startIn []*link
}

// compare matches the uplinks with a list, by configured name or else by current name. It returns
// an error if an uplink that stays cannot take its new configuration.
func (us *uplinks) compare(list []UplinkConfig) (uplinkChange, error) {
	if len(list) == 0 {
		return uplinkChange{}, errors.New("it names no uplink: `weir down` gives all of them back")
	}
	change := uplinkChange{kept: map[*link]UplinkConfig{}}
	for _, config := range list {
		u := us.named(config.Name)
		if u == nil {
			change.added = append(change.added, config)
			continue
		}
		if other, twice := change.kept[u]; twice {
			return uplinkChange{}, fmt.Errorf("it names %s twice, as %s and as %s", u.device.Name(), other.Name, config.Name)
		}
		if err := u.device.Check(config); err != nil {
			return uplinkChange{}, err
		}
		change.kept[u] = config
	}
	for _, u := range us.list {
		config, stays := change.kept[u]
		if u.of != nil {
			config, stays = change.kept[u.of]
			stays = stays && config.In.Shared
		}
		if !stays { // first received traffic: it needs its uplink to end
			change.removed = append([]*link{u}, change.removed...)
		}
		if stays && u.of == nil && config.In.Shared && u.in == nil {
			change.startIn = append(change.startIn, u)
		}
	}
	return change, nil
}

// named returns the uplink with that configured name, or else that present name; for uplink.Auto else
// the one that is the default route's device; nil for none.
func (us *uplinks) named(name string) *link {
	for _, is := range []func(u *link) bool{
		func(u *link) bool { return u.device.Config().Name == name },
		func(u *link) bool { return u.device.Name() == name },
		func(u *link) bool {
			if name != uplink.Auto {
				return false
			}
			link, err := us.machine.DefaultLink()
			return err == nil && u.device.Ifindex() == link.Index
		},
	} {
		if i := slices.IndexFunc(us.list, func(u *link) bool { return u.of == nil && is(u) }); i >= 0 {
			return us.list[i]
		}
	}
	return nil
}
