package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
)

// Settings are what of a Config may change while the agent runs.
type Settings struct {
	// Uplinks are the same devices as before, with other rates perhaps.
	Uplinks            []UplinkConfig
	ReserveBasisPoints uint32
	Host               v1.Policy
	Rules              policy.Rules
}

// Reload reads the settings again and puts them into force: all of them, or, with
// an error, none. Classes and queues are changed in place, so that no packet is
// lost. Errors: ErrRefused.
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
	uplinks, err := a.sameUplinks(settings.Uplinks)
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
	for i, u := range a.uplinks {
		beforeBPS := u.rateBPS
		u.reserveBasisPoints = settings.ReserveBasisPoints
		u.device.Configure(uplinks[i])
		a.advance(u)
		if u.rateBPS != beforeBPS {
			a.log.Info("the uplink has another rate", "uplink", u.name, "rate_bps", u.rateBPS, "before_bps", beforeBPS)
		}
	}
	a.reconcile()
	a.log.Info("configuration read again")
	return a.save()
}

// sameUplinks are the configurations of list in the order of the uplinks, which
// have to be the same, and able to be what is configured.
func (a *Agent) sameUplinks(list []UplinkConfig) ([]UplinkConfig, error) {
	var before, after []string
	for _, u := range a.uplinks {
		before = append(before, u.device.Config().Name)
	}
	for _, config := range list {
		after = append(after, config.Name)
	}
	if !slices.Equal(slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(after))) {
		return nil, fmt.Errorf("it names other uplinks (%s) than those that are shared out (%s): restart the agent for that, which loses nothing",
			strings.Join(after, ", "), strings.Join(before, ", "))
	}
	ordered := slices.SortedFunc(slices.Values(list), func(x, y UplinkConfig) int {
		return slices.Index(before, x.Name) - slices.Index(before, y.Name)
	})
	for i, u := range a.uplinks {
		if err := u.device.Check(ordered[i]); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}
