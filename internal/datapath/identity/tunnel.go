package identity

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// DefaultRouteProblem returns an error with instructions about the default routes, IPv4 or IPv6, that
// lead through these devices, past the uplinks (kernel.StackedOn); nil without such devices.
func DefaultRouteProblem(devices []string) error {
	if len(devices) == 0 {
		return nil
	}
	return fmt.Errorf("the default route leads through %s, which is no uplink: what is sent there is not controlled; make it one in the configuration file, follow the route with uplink: auto, or write ignore_default_route: true there if that is on purpose",
		strings.Join(devices, ", "))
}

func carryHook(ifindex int) kernel.Hook { return kernel.Hook{Ifindex: ifindex, Egress: true} }

// Carry lets what containers send through devices on top of the uplink (kernel.StackedOn) keep their
// numbers until the uplink, where the kind of the device allows it (bpf/uplink.bpf.c, carry).
func (u *Uplink) Carry(stacked []kernel.Stacked) error {
	var errs []error
	for _, s := range stacked {
		if program := u.carry[s.Kind]; program != nil {
			if err := attachCarry(s.Name, program); err != nil && !errors.Is(err, kernel.ErrNoLink) {
				errs = append(errs, fmt.Errorf("keep containers' numbers in %s: %w", s.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// attachCarry attaches a program to the device of that name unless it is attached.
func attachCarry(device string, program *ebpf.Program) error {
	link, err := kernel.LinkByName(device)
	if err != nil {
		return err
	}
	old, err := carryHook(link.Index).Find(uplinkProgWeirCarry)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		is, err := program.Info()
		if err != nil {
			return fmt.Errorf("ask for a program's ID: %w", err)
		}
		was, err := old.Info()
		if err != nil {
			return fmt.Errorf("ask for a program's ID: %w", err)
		}
		wanted, _ := is.ID()
		if has, _ := was.ID(); has == wanted {
			return nil
		}
	}
	return carryHook(link.Index).Attach(program, old)
}

// NotCarried returns those of the devices on top of an uplink where packets lose the numbers of
// containers.
func NotCarried(stacked []kernel.Stacked) (others []kernel.Stacked) {
	for _, s := range stacked {
		link, err := kernel.LinkByName(s.Name)
		if err == nil {
			if has, err := carryHook(link.Index).Has(uplinkProgWeirCarry); err == nil && has {
				continue
			}
		}
		others = append(others, s)
	}
	return others
}

// DetachCarriers removes the programs of Carry from all devices but those of stacked.
func DetachCarriers(stacked []kernel.Stacked) error {
	links, err := kernel.Links()
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range links {
		stays := slices.ContainsFunc(stacked, func(s kernel.Stacked) bool { return s.Name == l.Name })
		if !stays && l.IsTunnel() {
			errs = append(errs, carryHook(l.Index).Detach(uplinkProgWeirCarry))
		}
	}
	return errors.Join(errs...)
}

// TunnelProblem returns an error with instructions about devices on top of an uplink that routes
// lead through (kernel.StackedOn) and where packets lose the numbers of containers; nil without such
// devices. A tunnel's choice of a queue overwrites the number, and encryption removes it.
func TunnelProblem(stacked []kernel.Stacked) error {
	if len(stacked) == 0 {
		return nil
	}
	var names []string
	for _, s := range stacked {
		names = append(names, fmt.Sprintf("%s (%s on %s)", s.Name, s.Kind, s.On))
	}
	return fmt.Errorf("routes lead through %s; if containers send through it, make it an uplink of its own in the configuration file, with its rate",
		strings.Join(names, ", "))
}
