package run

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/spec"
)

// A rule that does not compile is refused before anything is fetched or made.
func TestDeployChecksRule(t *testing.T) {
	m := &Manager{opts: Options{DryRun: true}}
	document := `{"par":{"serviceName":"s","imageName":"i:1"},"algorithm":"rule","rule":"1 +"}`
	_, err := m.Deploy(context.Background(), []byte(document))
	var wrong *SpecificationError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "the rule is not valid") {
		t.Errorf("got %v", err)
	}
}

// What of a specification does less than it says is said when it is deployed.
func TestOdd(t *testing.T) {
	e, err := engine.New(engine.Policy{Rules: map[string]string{"near": "option.local"}})
	if err != nil {
		t.Fatal(err)
	}
	for rest, want := range map[string]string{
		``:                                       "",
		`, "algorithm": "near"`:                  "",
		`, "rule": "option.local"`:               "",
		`, "algorithm": "hybird"`:                `there is no algorithm "hybird" here, so hybrid decides`,
		`, "QoS": {"numUsers": 100}`:             "QoS.numUsers 100 has no effect without par.maxUsers",
		`, "QoS": {"numUsers": 1}, "limits": {}`: "QoS.numUsers 1 has no effect",
	} {
		s, err := spec.Parse([]byte(`{"par": {"serviceName": "s", "imageName": "i:1"}` + rest + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(odd(&s, e), "; "); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", rest, got, want)
		}
	}
	s, err := spec.Parse([]byte(`{"par": {"serviceName": "s", "imageName": "i:1", "maxUsers": 50}, "QoS": {"numUsers": 100}}`))
	if notes := odd(&s, e); err != nil || notes != nil {
		t.Errorf("%q, %v of one that says all", notes, err)
	}
}
