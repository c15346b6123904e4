package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/config"
	"github.com/weir-project/weir/internal/kernel"
	"github.com/weir-project/weir/internal/policy"
)

// propose makes a configuration for this host: the device that the default route leads
// through, at the speed that it reports if it is hardware, and otherwise at what a
// measurement of the way to the next router gives.
func propose(ctx context.Context) (config.Proposal, error) {
	route, err := kernel.FindDefaultRoute()
	if errors.Is(err, kernel.ErrNoDefaultRoute) {
		return config.Proposal{}, errors.New(
			"this host has no default route that would tell its uplink: write which device leads to the network and what it can send, uplink: and rate:, into " + config.DefaultPath)
	}
	if err != nil {
		return config.Proposal{}, err
	}
	p := config.Proposal{Interface: route.Link.Name, Basis: config.BasisNone}
	// What virtual devices report means nothing.
	if speedBPS, err := kernel.LinkSpeedBPS(route.Link.Name); err == nil && speedBPS != 0 && reportsTrueSpeed[route.Link.Kind] {
		p.LinkBPS, p.Basis = speedBPS, config.BasisSpeed
		return p, nil
	}
	if !route.Gateway.Is4() {
		return p, nil
	}
	// Without the right to measure, or an answer, nothing is known.
	if rateBPS, err := kernel.MeasureLinkBPS(ctx, route.Gateway); err == nil {
		p.LinkBPS, p.Basis = rateBPS, config.BasisMeasured
	}
	return p, nil
}

// reportsTrueSpeed are the kinds of devices that know the speed of a real link.
var reportsTrueSpeed = map[string]bool{"device": true, "bond": true, "team": true, "vlan": true}

func printProposal(ctx context.Context, out io.Writer) error {
	p, err := propose(ctx)
	if err == nil {
		_, err = io.WriteString(out, p.YAML())
	}
	return err
}

// unconfigured says what to do where there is no configuration.
func unconfigured(ctx context.Context, path string) error {
	p, err := propose(ctx)
	if err != nil {
		return cmdline.WithCode(exitUnconfigured, fmt.Errorf("there is no %s, and %w", path, err))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "there is no %s, so nothing is controlled. For this host it could be:\n", path)
	for line := range strings.Lines(p.YAML()) {
		if !strings.HasPrefix(line, "#") {
			if p.Basis == config.BasisNone {
				line = strings.Replace(line, "rate: "+policy.FormatRate(p.RateBPS()), "rate: "+policy.FormatRate(p.RateBPS())+"  # nothing is known of the link", 1)
			}
			text.WriteString("    " + line)
		}
	}
	start := "systemctl start weir"
	if path != config.DefaultPath { // which the unit does not read
		start = "weir agent --config " + path
	}
	fmt.Fprintf(&text, "To accept that: weir agent --propose >%s && %s\n", path, start)
	text.WriteString("To look at it, and at where the rate comes from: weir agent --propose")
	return cmdline.WithCode(exitUnconfigured, errors.New(text.String()))
}
