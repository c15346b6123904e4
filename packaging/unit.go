// Package packaging is what the shipped unit allows the agent, for tests that run it
// under exactly that.
package packaging

import (
	_ "embed" // the unit
	"fmt"
	"strings"
)

//go:embed weir.service
var unit string

// Setting is what the unit has for a key that it has once.
func Setting(key string) (string, error) {
	_, rest, found := strings.Cut(unit, "\n"+key+"=")
	if !found {
		return "", fmt.Errorf("the unit has no %s", key)
	}
	value, more, _ := strings.Cut(rest, "\n")
	if strings.Contains("\n"+more, "\n"+key+"=") {
		return "", fmt.Errorf("the unit has %s twice", key)
	}
	return value, nil
}

// Confined is a command that runs another with the capabilities that the unit leaves the
// agent, no way to others, and the unit's niceness.
func Confined() ([]string, error) {
	capabilities, err := Setting("CapabilityBoundingSet")
	if err != nil {
		return nil, err
	}
	niceness, err := Setting("Nice")
	if err != nil {
		return nil, err
	}
	bounding := "-all"
	for _, name := range strings.Fields(capabilities) {
		name = strings.ToLower(strings.TrimPrefix(name, "CAP_"))
		if number, newer := newerCapabilities[name]; newer {
			name = number
		}
		bounding += ",+" + name
	}
	return []string{"nice", "-n", niceness, "setpriv", "--no-new-privs", "--bounding-set=" + bounding, "--inh-caps=-all", "--"}, nil
}

// newerCapabilities are those that the library of older releases' setpriv has no name for.
var newerCapabilities = map[string]string{"perfmon": "cap_38", "bpf": "cap_39"}
