package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/share/policy"
)

// propose returns a configuration for this host. The uplink is the device of the default route. Its
// rate is the speed that the hardware reports, or else a measurement of the link to the next
// router.
func propose(ctx context.Context) (config.Proposal, error) {
	route, err := kernel.FindDefaultRoute()
	if errors.Is(err, kernel.ErrNoDefaultRoute) {
		return config.Proposal{}, errors.New(
			"this host has no default route to derive its uplink from: write the device and its rate (uplink: and rate:) into " + config.DefaultPath)
	}
	if err != nil {
		return config.Proposal{}, err
	}
	p := config.Proposal{Interface: route.Link.Name, Basis: config.BasisNone}
	// Virtual devices report meaningless speeds.
	if speedBPS, err := kernel.LinkSpeedBPS(route.Link.Name); err == nil && speedBPS != 0 && reportsTrueSpeed[route.Link.Kind] {
		p.LinkBPS, p.Basis = speedBPS, config.BasisSpeed
		return p, nil
	}
	if !route.Gateway.Is4() {
		return p, nil
	}
	// Without the privilege to measure, or without an answer, the rate stays unknown.
	if rateBPS, err := kernel.MeasureLinkBPS(ctx, route.Gateway); err == nil {
		p.LinkBPS, p.Basis = rateBPS, config.BasisMeasured
	}
	return p, nil
}

// reportsTrueSpeed lists the kinds of devices that report the speed of a real link.
var reportsTrueSpeed = map[string]bool{"device": true, "bond": true, "team": true, "vlan": true}

func printProposal(ctx context.Context, out io.Writer) error {
	p, err := propose(ctx)
	if err == nil {
		_, err = io.WriteString(out, p.YAML())
	}
	return err
}

// unconfigured returns the error for a missing configuration, with instructions.
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
	if path != config.DefaultPath { // the unit does not read that path
		start = "weir agent --config " + path
	}
	fmt.Fprintf(&text, "To accept that: weir agent --propose >%s && %s\n", path, start)
	text.WriteString("To look at it, and at where the rate comes from: weir agent --propose")
	return cmdline.WithCode(exitUnconfigured, errors.New(text.String()))
}
