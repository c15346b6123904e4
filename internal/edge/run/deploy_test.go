package run

import (
	"context"
	"errors"
	"strings"
	"testing"
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
