package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/kernel"
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
	rates, err := a.newRates(settings.Uplinks)
	if err != nil {
		err = fmt.Errorf("%w: the configuration stays as it was: %w", ErrRefused, err)
		a.log.Error("read the configuration again", "error", err)
		return err
	}
	for i, u := range a.uplinks {
		u.config, u.reserveBasisPoints = settings.Uplinks[i], settings.ReserveBasisPoints
		if u.rateBPS == rates[i] {
			continue
		}
		a.log.Info("the uplink has another rate", "uplink", u.name, "rate_bps", rates[i], "before_bps", u.rateBPS)
		u.rateBPS = rates[i]
		if u.lost() {
			continue
		}
		if err := u.limitPackets(); err != nil {
			// Not fatal: larger packets are cut up.
			a.log.Warn("limit the uplink's packets", "uplink", u.name, "error", err)
		}
	}
	a.host.resolved = hostResolution(settings.Host)
	a.config.Rules = settings.Rules
	for _, c := range a.registry.byKey {
		a.resolve(c)
	}
	a.reconcile()
	a.log.Info("configuration read again")
	return a.save()
}

// newRates are the rates that the uplinks are to have, in their order. It puts
// list into that order, too.
func (a *Agent) newRates(list []UplinkConfig) ([]uint64, error) {
	var before, after []string
	for _, u := range a.uplinks {
		before = append(before, u.config.Name)
	}
	for _, config := range list {
		after = append(after, config.Name)
	}
	if !slices.Equal(slices.Sorted(slices.Values(before)), slices.Sorted(slices.Values(after))) {
		return nil, fmt.Errorf("it names other uplinks (%s) than those that are shared out (%s): restart the agent for that, which loses nothing",
			strings.Join(after, ", "), strings.Join(before, ", "))
	}
	slices.SortFunc(list, func(x, y UplinkConfig) int {
		return slices.Index(before, x.Name) - slices.Index(before, y.Name)
	})
	rates := make([]uint64, len(list))
	for i, u := range a.uplinks {
		if u.lost() {
			rates[i] = list[i].RateBPS // checked when it comes back
			continue
		}
		var err error
		if rates[i], err = rateOf(u.name, list[i]); err != nil {
			return nil, err
		}
	}
	return rates, nil
}

// rateOf is what a device may send: what is configured, or the speed that it
// reports. Errors say what to do: no rate, a rate above the device's speed.
func rateOf(name string, config UplinkConfig) (uint64, error) {
	speedBPS, err := kernel.LinkSpeedBPS(name)
	if err != nil {
		return 0, err
	}
	switch {
	case config.RateBPS == 0 && speedBPS == 0:
		return 0, fmt.Errorf("%s does not report its speed: say how fast it is, e.g. --rate 100mbit", name)
	case config.RateBPS == 0:
		return speedBPS, nil
	case speedBPS != 0 && config.RateBPS > speedBPS && !config.IgnoreLinkSpeed:
		return 0, fmt.Errorf("the rate %s is above the speed of %s, which is %s: give that or less, or leave the rate out (--ignore-link-speed if the device is wrong about itself)",
			policy.FormatRate(config.RateBPS), name, policy.FormatRate(speedBPS))
	}
	return config.RateBPS, nil
}
