package engine

import (
	"errors"
	"fmt"
)

// Policy is the operator's configuration of the engine, for all services.
type Policy struct {
	// Rules are the operator's algorithms: CEL expressions by name; see [CheckRule].
	Rules map[string]string `json:"rules,omitempty"`
}

// Check returns what is wrong with a policy.
func (p *Policy) Check() error {
	var problems []error
	for name, rule := range p.Rules {
		if err := CheckRule(rule); err != nil {
			problems = append(problems, fmt.Errorf("rules.%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}
