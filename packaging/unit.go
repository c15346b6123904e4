// Package packaging returns what the shipped unit allows the agent, for tests that run the agent
// under exactly that.
package packaging

import (
	_ "embed" // the unit
	"fmt"
	"strings"
)

//go:embed weir.service
var unit string

// Setting returns the value of a key that the unit has once.
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

// Confined returns a command that runs another with the unit's capabilities and niceness, and
// without a way to further capabilities.
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

// newerCapabilities have no name in the setpriv of older releases.
var newerCapabilities = map[string]string{"perfmon": "cap_38", "bpf": "cap_39"}
