package loop

import (
	"context"
	"errors"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
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
func (cs *containers) findIf(name string, conditions []Condition) (*container, error) {
	c, err := cs.find(name)
	if err != nil {
		return nil, err
	}
	for _, condition := range conditions {
		if err := condition(c.view(cs.owners())); err != nil {
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
		if c, err = a.containers.findIf(name, conditions); err != nil {
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
	set, _, err := a.trialOf(c).try(change)
	if err != nil {
		return err
	}
	c.set = set
	a.containers.resolve(c)
	logged := []any{"name", c.Seen.Name, "policy", c.policy()}
	if c.receives() || c.resolved.HasIncoming() {
		logged = append(logged, "in", c.resolved.In)
	}
	a.log.Info("policy set", logged...)
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

// Down removes everything from the kernel, restores the previous queueing, and ends Run.
func (a *Agent) Down(ctx context.Context) error {
	var err error
	doErr := a.do(ctx, func() { err = a.down() })
	return errors.Join(doErr, err)
}
