package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/share/policy"
)

// defaultDashboard is where a proposed configuration shows the dashboard.
const defaultDashboard = "127.0.0.1:7480"

// Basis is the origin of a proposed rate.
type Basis string

// The bases of a rate.
const (
	// BasisSpeed is the speed that the device reports.
	BasisSpeed Basis = "speed"
	// BasisMeasured is a packet train measurement: the spacing of the next router's replies
	// to packets sent at once.
	BasisMeasured Basis = "measured"
	// BasisNone means that the link's rate is unknown.
	BasisNone Basis = "none"
)

// fallbackRateBPS is proposed for a link of unknown rate.
const fallbackRateBPS = 100_000_000

// Packets are to queue here and not behind the link: a little is left of what it has,
// and more of what is only measured.
const (
	speedPercent    = 95
	measuredPercent = 90
)

// Proposal is a configuration for a host without one.
type Proposal struct {
	// Interface is the device to control.
	Interface string
	// LinkBPS is the link's known or measured rate, in bits per second.
	LinkBPS uint64
	Basis   Basis
}

// RateBPS returns the proposed rate in bits per second, with two significant digits.
func (p Proposal) RateBPS() uint64 {
	percent := uint64(0)
	switch p.Basis {
	case BasisSpeed:
		percent = speedPercent
	case BasisMeasured:
		percent = measuredPercent
	case BasisNone:
		return fallbackRateBPS
	}
	rate, unit := p.LinkBPS/100*percent, uint64(1)
	for rate/unit >= 100 {
		unit *= 10
	}
	return rate / unit * unit
}

// YAML returns the proposal as a configuration file.
func (p Proposal) YAML() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# The default route leads through this device. On a laptop write auto, which follows it to others.\nuplink: %s\n", quoted(p.Interface))
	switch p.Basis {
	case BasisSpeed:
		fmt.Fprintf(&b, "# A little below the speed of the link, %s.", policy.FormatRate(p.LinkBPS))
	case BasisMeasured:
		fmt.Fprintf(&b, "# A little below what packets to the next router took, about %s: a guess.", policy.FormatRateShort(p.LinkBPS))
	case BasisNone:
		b.WriteString("# The device does not report its speed: this is a guess without any ground.")
	}
	fmt.Fprintf(&b, " If what follows\n# is slower (a modem, a provider), write a little below that.\nrate: %s\n", policy.FormatRate(p.RateBPS()))
	if p.Basis == BasisSpeed {
		b.WriteString("# Received traffic is shared, too; auto is 95 % of that speed. Leave it out to share only sent traffic.\nin_rate: auto\n")
	} else {
		b.WriteString("# To share received traffic, too, write a little below the rate at which downloads arrive\n# (`weir advise rate SERVER` measures it).\n#in_rate: 95mbit\n")
	}
	fmt.Fprintf(&b, "# A page for this host's users: http://%[1]s\ndashboard: %[1]s\n", defaultDashboard)
	return b.String()
}

// quoted returns a device's name for YAML, quoted if YAML could read it as something else.
func quoted(name string) string {
	other := []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
	plain := strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" &&
		name != "" && (name[0] >= 'a' && name[0] <= 'z') && !slices.Contains(other, strings.ToLower(name))
	if plain {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", "''") + "'"
}
