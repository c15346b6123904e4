package loop

import (
	"errors"

	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/datapath/kernel"
)

// indexesOf returns the indexes of the uplinks that exist.
func indexesOf(uplinks []UplinkConfig) (indexes []int, err error) {
	for _, u := range uplinks {
		device, err := kernel.LinkByName(u.Name)
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
			a.log.Error("restore the previous classifier", "error", err)
		}
	}, nil
}
