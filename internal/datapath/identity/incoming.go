package identity

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Incoming is the classifier of what an uplink receives (bpf/incoming.bpf.c): the uplink's ingress
// hook finds the container of each packet and redirects the packet to an IFB, at which the same
// classifier as at an uplink reads it. It needs the flows that the uplink sends: Table.NoteSenders.
type Incoming struct {
	*Uplink

	redirect    kernel.Redirect
	holderSince *ebpf.Map
}

// OpenIncoming attaches the classifier to the IFB, and then the redirect to the device from. It
// replaces earlier ones as OpenUplink does, and no packet passes unshaped meanwhile.
func OpenIncoming(from, ifb int, majors sched.Majors, origins *Origins) (*Incoming, error) {
	if origins.flows == nil {
		return nil, errors.New("classify what comes in: it needs the table of senders")
	}
	if err := origins.flows.openSenders(); err != nil {
		return nil, err
	}
	u, err := openUplink(&Uplink{hook: kernel.Hook{Ifindex: ifb, Egress: true}, majors: majors, framesOf: from}, origins)
	if err != nil {
		return nil, err
	}
	i := &Incoming{Uplink: u, redirect: kernel.Redirect{From: from, To: ifb}}
	if err := i.attach(origins); err != nil {
		return nil, errors.Join(fmt.Errorf("classify what comes in: %w", err), u.Close())
	}
	return i, nil
}

// attach loads the program of the uplink's ingress hook, and redirects by it.
func (i *Incoming) attach(origins *Origins) error {
	spec, err := loadIncoming()
	if err != nil {
		return err
	}
	shared := origins.flows.shared()
	shared[incomingMapCrossings] = i.crossings
	shared[incomingMapPublished] = i.published.entries
	old, err := i.redirect.Find(incomingProgWeirIncoming)
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		m, err := mapOf(old, incomingMapHolderSinceMs)
		if err != nil {
			return err
		}
		if m != nil {
			defer m.Close()
			shared[incomingMapHolderSinceMs] = m
		}
	}
	device, err := kernel.LinkByIndex(i.redirect.From)
	if err != nil {
		return fmt.Errorf("look up the uplink's device: %w", err)
	}
	if !device.Ethernet {
		if err := spec.Variables[incomingVarLinkHeaderBytes].Set(uint32(0)); err != nil {
			return fmt.Errorf("set the size of link headers: %w", err)
		}
	}
	var objects struct {
		Program     *ebpf.Program `ebpf:"weir_incoming"`
		HolderSince *ebpf.Map     `ebpf:"holder_since_ms"`
	}
	if err := load(spec, &objects, only(shared, spec)); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Program.Close()
	i.holderSince = objects.HolderSince
	if err := i.redirect.Attach(objects.Program); err != nil {
		return err
	}
	// Another device may have been the uplink before.
	return removeRedirects(func(r kernel.Redirect) bool { return r.To == i.redirect.To && r.From != i.redirect.From })
}

// removeRedirects removes those redirects of received packets, at all devices, for which is holds.
func removeRedirects(is func(kernel.Redirect) bool) error {
	list, err := kernel.Redirects(incomingProgWeirIncoming)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range list {
		if is(r) {
			errs = append(errs, r.Detach())
		}
	}
	return errors.Join(errs...)
}

// Apply applies the parts of a table that matter for received packets: traffic classes and
// published ports. Received packets have no sockets, tags or origins of this host.
func (i *Incoming) Apply(t Table) Refusals {
	received := Table{Published: t.Published}
	for _, a := range t.Numbers {
		received.Numbers = append(received.Numbers, Assignment{Number: a.Number, Class: a.Class})
	}
	return i.Uplink.Apply(received)
}

// Forget clears all settings of a number. What its holder has sent so far says nothing of the next
// holder.
func (i *Incoming) Forget(number uint16) error {
	since := sinceMS()
	if err := i.holderSince.Update(uint32(number), since|1, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("forget the flows of number %d: %w", number, err)
	}
	return i.Uplink.Forget(number)
}

// Close closes the handles; the classifier keeps working.
func (i *Incoming) Close() error {
	return errors.Join(i.holderSince.Close(), i.Uplink.Close())
}

// IncomingAttached reports whether the redirect and the classifier that OpenIncoming attaches are
// in place.
func IncomingAttached(from, ifb int) (bool, error) {
	program, err := kernel.Redirect{From: from, To: ifb}.Find(incomingProgWeirIncoming)
	if err != nil || program == nil {
		return false, err
	}
	if err := program.Close(); err != nil {
		return false, fmt.Errorf("close a program: %w", err)
	}
	return UplinkAttached(ifb)
}

// DetachIncoming removes first all redirects to an IFB, and then its classifier, so that no packet is
// sent to an IFB that does not return it. The IFB may be gone; 0 is none.
func DetachIncoming(ifb int) error {
	if ifb == 0 {
		return nil
	}
	if err := removeRedirects(func(r kernel.Redirect) bool { return r.To == ifb }); err != nil {
		return err
	}
	if err := DetachUplink(ifb); err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	return nil
}

// DetachRedirects removes all redirects of received packets.
func DetachRedirects() error { return removeRedirects(func(kernel.Redirect) bool { return true }) }
