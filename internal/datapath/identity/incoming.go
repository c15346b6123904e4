package identity

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// Incoming is the classifier of what an uplink receives (bpf/incoming.bpf.c): the uplink's ingress
// hook finds the container of each packet and redirects the packet to an IFB, at which the same
// classifier as at an uplink reads it. It needs the flows that the uplink sends: Table.NoteSenders.
type Incoming struct {
	*Uplink

	redirect kernel.Redirect
	tables   incomingTables
}

// incomingTables are those of the program at the uplink's ingress hook alone.
type incomingTables struct {
	holderSince  *ebpf.Map
	destinations owners[incomingWeirDestination, incomingWeirReceiver]
}

// Destination is what received frames say of the device that they are for.
type Destination struct {
	MAC [6]byte
	// VXLANPort and VNI are those of the overlay network of the device, whose frames are within
	// VXLAN packets. The port is 0 for a device that frames at the uplink name (macvlan, port of its bridge).
	VXLANPort uint16
	VNI       uint32
}

// OpenIncoming attaches the classifier to the IFB, and then the redirect to the device from. It
// replaces earlier ones as OpenUplink does, and no packet passes unshaped meanwhile. After an error
// about the redirect neither is attached.
func OpenIncoming(from, ifb int, majors sched.Majors, origins *Origins) (*Incoming, error) {
	if origins.flows == nil {
		return nil, errors.New("classify received traffic: it needs the table of senders")
	}
	if err := origins.flows.openSenders(); err != nil {
		return nil, err
	}
	// Another device may have been the uplink before.
	if err := removeRedirects(func(r kernel.Redirect) bool { return r.To == ifb && r.From != from }); err != nil {
		return nil, fmt.Errorf("classify received traffic: %w", err)
	}
	u, err := openUplink(&Uplink{hook: kernel.Hook{Ifindex: ifb, Egress: true}, majors: majors, framesOf: from}, origins)
	if err != nil {
		return nil, err
	}
	i := &Incoming{Uplink: u, redirect: kernel.Redirect{From: from, To: ifb}}
	if err := i.attach(origins); err != nil {
		// A caller that goes on with the classifier before this one would not find out that it has been replaced.
		return nil, errors.Join(fmt.Errorf("classify received traffic: %w", err), u.Close(), DetachIncoming(ifb))
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
	old, err := i.predecessor()
	if err != nil {
		return err
	}
	if old != nil {
		defer old.Close()
		for _, name := range []string{incomingMapHolderSinceMs, incomingMapDestinations} {
			m, err := mapOf(old, name)
			if err != nil {
				return err
			}
			if m == nil {
				continue
			}
			defer m.Close()
			if spec.Maps[name].Compatible(m) == nil { // a map of another version is replaced by a new map
				shared[name] = m
			}
		}
	}
	if shared[incomingMapHolderSinceMs] == nil {
		// Former holders of numbers are unknown now (Forget): packets sent so far count for no container.
		since := sinceMS() | 1
		for number := range uint32(numbers) {
			m := spec.Maps[incomingMapHolderSinceMs]
			m.Contents = append(m.Contents, ebpf.MapKV{Key: number, Value: since})
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
		Program      *ebpf.Program `ebpf:"weir_incoming"`
		HolderSince  *ebpf.Map     `ebpf:"holder_since_ms"`
		Destinations *ebpf.Map     `ebpf:"destinations"`
	}
	if err := load(spec, &objects, only(shared, spec)); err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	defer objects.Program.Close()
	i.tables.holderSince = objects.HolderSince
	i.tables.destinations = owners[incomingWeirDestination, incomingWeirReceiver]{
		entries: objects.Destinations, compare: compareDestinations, number: func(r incomingWeirReceiver) uint32 { return r.Number },
	}
	if err := i.tables.destinations.read(); err != nil {
		return err
	}
	return i.redirect.Attach(objects.Program)
}

// From returns the index of the device whose received packets are classified.
func (i *Incoming) From() int { return i.redirect.From }

// predecessor opens the program that redirects at the device so far, also if its IFB is gone, or returns nil.
func (i *Incoming) predecessor() (*ebpf.Program, error) {
	list, err := kernel.Redirects(incomingProgWeirIncoming)
	at := slices.IndexFunc(list, func(r kernel.Redirect) bool { return r.From == i.redirect.From })
	if err != nil || at < 0 {
		return nil, err
	}
	return list[at].Find(incomingProgWeirIncoming)
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

// Apply applies the parts of a table that matter for received packets: traffic classes, published
// ports and destinations. Received packets have no sockets, tags or origins of this host.
func (i *Incoming) Apply(t Table) Refusals {
	received := Table{Published: t.Published}
	for _, a := range t.Numbers {
		received.Numbers = append(received.Numbers, Assignment{Number: a.Number, Class: a.Class})
	}
	refusals := i.Uplink.Apply(received)
	var refused map[uint16]error
	refused, refusals.Destinations = i.setDestinations(t.Destinations, t.Routing)
	for number, err := range refused {
		refusal := refusals.Numbers[number]
		refusal.Destinations = err
		refusals.Numbers[number] = refusal
	}
	return refusals
}

// setDestinations assigns received packets to the owners of the devices that they are for. numbers
// replaces the whole table; nil leaves it as it is. routing is as in Table.
func (i *Incoming) setDestinations(numbers map[Destination]uint16, routing map[[6]byte]int) (refused map[uint16]error, err error) {
	want := make(map[incomingWeirDestination]incomingWeirReceiver, len(numbers))
	for d, number := range numbers {
		receiver := incomingWeirReceiver{Number: uint32(number)}
		if number == NumberHost {
			receiver.Ifindex = uint32(routing[d.MAC])
		}
		want[incomingWeirDestination{Mac: d.MAC, VxlanPort: hostOrder(d.VXLANPort), Vni: d.VNI}] = receiver
	}
	if numbers == nil || maps.Equal(want, i.tables.destinations.known) {
		return nil, nil
	}
	full, err := i.tables.destinations.set(want)
	if err != nil {
		return nil, fmt.Errorf("assign the devices that received packets are for: %w", err)
	}
	refused = map[uint16]error{}
	for number := range full {
		refused[number] = ErrTooManyDestinations
	}
	return refused, nil
}

// ErrTooManyDestinations: the kernel's table of devices that received packets are for is full.
var ErrTooManyDestinations = errors.New("all containers together have more devices than the classifier remembers")

func compareDestinations(a, b incomingWeirDestination) int {
	return cmp.Or(bytes.Compare(a.Mac[:], b.Mac[:]), cmp.Compare(a.Vni, b.Vni), cmp.Compare(a.VxlanPort, b.VxlanPort))
}

// Forget clears all settings of a number. What its holder has sent so far says nothing of the next
// holder.
func (i *Incoming) Forget(number uint16) error {
	since := sinceMS()
	if err := i.tables.holderSince.Update(uint32(number), since|1, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("forget the flows of number %d: %w", number, err)
	}
	return i.Uplink.Forget(number)
}

// Close closes the handles; the classifier keeps working.
func (i *Incoming) Close() error {
	return errors.Join(i.tables.holderSince.Close(), i.tables.destinations.entries.Close(), i.Uplink.Close())
}

// IncomingAttached reports whether the redirect and the classifier that OpenIncoming attaches are
// in place, and names the programs and filters of others that see packets before the redirect.
func IncomingAttached(from, ifb int) (attached bool, before []string, err error) {
	program, before, err := kernel.Redirect{From: from, To: ifb}.FindPlace(incomingProgWeirIncoming, bridgeProgWeirBridge)
	if err != nil || program == nil {
		return false, nil, err
	}
	if err := program.Close(); err != nil {
		return false, nil, fmt.Errorf("close a program: %w", err)
	}
	attached, err = UplinkAttached(ifb)
	return attached, before, err
}

// IncomingOthers names the programs and filters of others at the ingress hook of the device from.
func IncomingOthers(from, ifb int) ([]string, error) {
	return kernel.Redirect{From: from, To: ifb}.Others(bridgeProgWeirBridge) // which has no verdict
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

// DetachStale removes redirects to IFBs that are gone, except at the device from, whose tables OpenIncoming takes over.
func DetachStale(from int) error {
	return removeRedirects(func(r kernel.Redirect) bool {
		_, err := kernel.LinkByIndex(r.To)
		return r.From != from && errors.Is(err, kernel.ErrNoLink)
	})
}

// DetachRedirects removes all redirects of received packets.
func DetachRedirects() error { return removeRedirects(func(kernel.Redirect) bool { return true }) }
