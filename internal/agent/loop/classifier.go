package loop

import (
	"errors"

	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// indexesOf returns the indexes of the uplinks that exist: those of the state file, whose devices
// may have another name than the configured one (a port of a bridge, a renamed device), and those
// that have a configured name.
func indexesOf(uplinks []UplinkConfig, saved []*state.Uplink) (indexes []int, err error) {
	for _, u := range saved {
		if u.Ifindex == 0 {
			continue
		}
		if _, err := kernel.LinkByIndex(u.Ifindex); err == nil {
			indexes = append(indexes, u.Ifindex)
		} else if !errors.Is(err, kernel.ErrNoLink) {
			return nil, err
		}
	}
	for _, u := range uplinks {
		device, err := kernel.LinkByName(u.Name)
		if u.Name == uplink.Auto {
			device, err = kernel.DefaultLink()
		}
		if errors.Is(err, kernel.ErrNoLink) {
			continue // it may come later
		}
		if err != nil {
			return nil, err
		}
		indexes = append(indexes, device.Index)
	}
	return indexes, nil
}

// takeClassifier switches to another classifier for flows and returns a function that switches
// back. Errors: ErrRefused; the previous classifier stays in force.
func (a *Agent) takeClassifier(choice flows.Choice) (undo func(), err error) {
	if a.attach.Flows == nil {
		return func() {}, nil
	}
	before := a.config.Classifier
	if err := a.attach.Flows.Use(choice); err != nil {
		return nil, err
	}
	a.config.Classifier = choice
	return func() {
		a.config.Classifier = before
		if err := a.attach.Flows.Use(before); err != nil {
			a.log.Error("cannot restore the previous classifier", "error", err)
		}
	}, nil
}
