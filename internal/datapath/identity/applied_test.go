package identity

import (
	"errors"
	"testing"
)

// A setting is told once, again when it was refused or may have been changed by others.
func TestApplied(t *testing.T) {
	refusal := errors.New("no room")
	var a Applied[int]
	for _, step := range []struct {
		name    string
		want    int
		recheck bool
		err     error
		calls   bool
	}{
		{name: "not told yet", want: 0, calls: true},
		{name: "in force", want: 0},
		{name: "another", want: 7, calls: true, err: refusal},
		{name: "refused", want: 7, calls: true, err: refusal},
		{name: "taken", want: 7, calls: true},
		{name: "changed by others", want: 7, calls: true, recheck: true},
		{name: "as before", want: 7},
	} {
		if step.recheck {
			a.Recheck()
		}
		called := false
		err := a.Apply(step.want, func() error { called = true; return step.err })
		inForce, refused := a.InForce(step.want), a.Refused(step.want)
		if called != step.calls || !errors.Is(err, step.err) || !errors.Is(a.Err(), step.err) || inForce != (step.err == nil) || refused == inForce || a.InForce(8) || !a.Told() {
			t.Errorf("%s: called %v, error %v, in force %v, refused %v", step.name, called, err, inForce, refused)
		}
	}
}
