package uplink

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// What an uplink receives is shared at a device of its own, an IFB that Weir makes: it has the life
// cycle of an uplink, the same scheduler and the same classifier. Received packets are redirected to
// it at the uplink's ingress hook (bpf/incoming.bpf.c).

// incomingPrefix begins the names of IFBs; the uplink's name follows.
const incomingPrefix = "in-"

// incomingPercent of the speed that a device reports count as the speed of its IFB. Of that 98 % are
// shared where the configuration gives no rate (largeFramesPercent): 95 %, so that packets queue here
// and not before the link.
const incomingPercent = 97

// IncomingName returns the name of the IFB of an uplink. Of a long name the end is replaced by a hash.
func IncomingName(uplink string) string {
	name := incomingPrefix + uplink
	if len(name) <= kernel.MaxNameBytes {
		return name
	}
	hash := fnv.New32a()
	hash.Write([]byte(uplink))
	end := fmt.Sprintf("~%04x", hash.Sum32()&0xffff)
	return name[:kernel.MaxNameBytes-len(end)] + end
}

// incoming is the machine of an IFB. It differs from that of other devices in that Weir makes and
// deletes the device, switches it on again, and attaches the classifier to two devices.
type incoming struct {
	*Host
	// from returns the name and index of the uplink; 0 while it is absent.
	from func() (name string, ifindex int)
}

// Incoming implements Machine.
func (h *Host) Incoming(from func() (name string, ifindex int)) Machine { return &incoming{h, from} }

// Obstacle names programs and filters of others at the uplink's ingress hook. A redirected packet
// returns behind that hook, so a firewall there would silently stop working.
func (m *incoming) Obstacle(ifb int) (string, error) {
	name, from := m.from()
	others, err := identity.IncomingOthers(from, ifb)
	if err == nil {
		var chains []string
		chains, err = kernel.IngressChains(name)
		others = append(others, chains...)
	}
	if err != nil || len(others) == 0 {
		return "", err
	}
	return fmt.Sprintf("%s at ingress of %s would not see what is redirected to be shared, so nothing is: remove it, or accept that with in_force: true",
		strings.Join(others, ", "), name), nil
}

// LinkByName returns the IFB, and makes it if the uplink is there. While the uplink is absent it deletes the IFB
// instead: without a control loop nothing may be redirected to it. Errors: kernel.ErrNoLink while the uplink is
// absent; another device of that name.
func (m *incoming) LinkByName(name string) (kernel.Link, error) {
	_, from := m.from()
	if from == 0 {
		return kernel.Link{}, cmp.Or(m.Discard(name), kernel.ErrNoLink)
	}
	link, err := kernel.LinkByName(name)
	if errors.Is(err, kernel.ErrNoLink) {
		if err = errors.Join(identity.DetachStale(from), kernel.AddIFB(name)); err == nil {
			link, err = kernel.LinkByName(name)
		}
	}
	if err == nil && link.Kind != kernel.KindIFB {
		return link, fmt.Errorf("%s is a device of kind %s, and Weir needs the name for an IFB: rename that device", name, link.Kind)
	}
	return m.ready(link, err)
}

// LinkByIndex implements Machine.
func (m *incoming) LinkByIndex(ifindex int) (kernel.Link, error) {
	if _, uplink := m.from(); uplink == 0 {
		return kernel.Link{}, kernel.ErrNoLink
	}
	return m.ready(kernel.LinkByIndex(ifindex))
}

// ready switches the IFB on, which drops all packets while it is off, and returns it with the MTU and the index of its
// uplink, and as a tunnel if that is one. Of an IFB that it has switched on, only Up says that it was off.
func (m *incoming) ready(link kernel.Link, err error) (kernel.Link, error) {
	if err == nil && !link.Up {
		if err = kernel.SetUp(link.Index); err == nil {
			link, err = kernel.LinkByIndex(link.Index)
			link.Up = false
		}
	}
	if err != nil {
		return link, err
	}
	_, ifindex := m.from()
	uplink, err := kernel.LinkByIndex(ifindex)
	link.MTUBytes, link.UplinkIndex = uplink.MTUBytes, ifindex
	if uplink.IsTunnel() {
		link.Kind = uplink.Kind
	}
	return link, err
}

// SpeedBPS returns a little less than the speed that the uplink reports.
func (m *incoming) SpeedBPS(string) (uint64, error) {
	name, _ := m.from()
	bps, err := m.Host.SpeedBPS(name)
	return bps / 100 * incomingPercent, err
}

// SetGSOMaxBytes does nothing: the senders of received packets are elsewhere.
func (*incoming) SetGSOMaxBytes(int, uint32) error { return nil }

// OpenClassifier implements Machine.
func (m *incoming) OpenClassifier(ifb int, majors sched.Majors) (identity.Classifier, Delays, error) {
	_, from := m.from()
	classifier, err := identity.OpenIncoming(from, ifb, majors, m.watcher)
	if err != nil {
		return nil, nil, err
	}
	return classifier, delaysOf(classifier.Uplink), nil
}

// Classified implements Machine. What programs and filters that see packets before the redirect decide about never
// gets to it.
func (m *incoming) Classified(ifb int) (bool, error) {
	name, from := m.from()
	attached, before, err := identity.IncomingAttached(from, ifb)
	if err == nil && len(before) > 0 {
		err = &Problem{Kind: Obstructed, Text: fmt.Sprintf(
			"%s at ingress of %s sees packets before Weir, and those that it decides about are not shared: remove it, or give a filter a larger preference (tc filter add ... pref 10)",
			strings.Join(before, ", "), name)}
	}
	return attached, err
}

// Declassify implements Machine.
func (*incoming) Declassify(ifb int) error { return identity.DetachIncoming(ifb) }

// Discard deletes the IFB, redirects to it, and redirects to earlier IFBs that are gone.
func (*incoming) Discard(name string) error {
	link, err := kernel.LinkByName(name)
	if err == nil && link.Kind == kernel.KindIFB && strings.HasPrefix(name, incomingPrefix) {
		if err = identity.DetachIncoming(link.Index); err == nil { // else a later look finds it again
			err = kernel.DeleteLink(link.Index)
		}
	}
	if err != nil && !errors.Is(err, kernel.ErrNoLink) {
		return err
	}
	return identity.DetachStale(0)
}
