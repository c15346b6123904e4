package ovsdb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/datapath/htb"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Weir's own queues on the ports of a switch.
//
// Problem. Open vSwitch's linux-htb has queues of 1000 packets and none of HTB's
// details. Method. A QoS row of type linux-noop has Open vSwitch leave a port's
// queueing alone (lib/netdev-linux.c, netdev_linux_set_qos), while its kernel datapath
// goes on naming queues in packets' priorities: the controller makes the classes
// itself, which takes the port's device, so that it must run where the switch does.
// The row keeps its queues, for people to see and because Open vSwitch takes away the
// queueing of a port whose row has none (vswitchd/bridge.c, iface_configure_qos), and
// remembers what was on the device before.
//
// Limits. OpenFlow's statistics lack such queues, which are the kernel's.

// device identifies a port's network device as the database describes it.
type device struct {
	name    string
	ifindex int
	mac     string
}

// local returns the matching device of this host. Name, index and MAC address are compared
// together, because names repeat between hosts.
func (d device) local() (*net.Interface, error) {
	link, err := net.InterfaceByName(d.name)
	if err == nil && link.Index == d.ifindex && strings.EqualFold(link.HardwareAddr.String(), d.mac) {
		return link, nil
	}
	return nil, fmt.Errorf("the port's device %s is not on this host, or not in this network namespace: "+
		"with --qos linux-noop the controller makes the queues and runs where the switch does; elsewhere use --qos linux-htb", d.name)
}

// trees configures queues on devices of this host. It is not safe for concurrent use.
type trees struct {
	tc *kernel.TC // opened on first use
	// counted are the last counters by port.
	counted map[topology.Port]counted
}

// counted are the kernel's last counters of a port's queues, and their sums.
type counted struct {
	at     time.Time
	queues map[int]htb.PortCounters
	totals map[openflow.Queue]qos.Counters
}

func (t *trees) close() {
	if t.tc != nil {
		_ = t.tc.Close() // Close of idle sockets cannot lose data
		t.tc = nil
	}
}

// port returns the HTB queueing of a device.
func (t *trees) port(ifindex int) (*htb.Port, error) {
	if t.tc == nil {
		tc, err := kernel.OpenTC()
		if err != nil {
			return nil, err
		}
		t.tc = tc
	}
	return htb.NewPort(t.tc, ifindex), nil
}

// selectByMark adds the filter that chooses a device's queue by a field of packets; without queues it
// removes it.
func (t *trees) selectByMark(d device, by qos.By, queues map[uint8]int) error {
	link, err := d.local()
	if err != nil {
		return fmt.Errorf("device %s is not on this host, or not in this network namespace: run this where the switch runs, as OVSDB alone cannot choose queues", d.name)
	}
	kinds := map[qos.Field]kernel.MarkKind{qos.FieldDSCP: kernel.MarkDSCP, qos.FieldPCP: kernel.MarkPCP, qos.FieldMark: kernel.MarkPacket}
	port, err := t.port(link.Index)
	if err == nil {
		_, err = port.SelectByMark(kinds[by.Field], by.Mask, queues)
	}
	return err
}

// place is the device for a port's queues.
type place struct {
	link  *net.Interface
	port  *htb.Port
	owner htb.PortOwner
	// aside is another program's queueing that was put aside, as JSON; empty if none.
	aside string
}

// checkOwner returns an error if a device's queueing, of kind what, must stay as it is.
func checkOwner(owner htb.PortOwner, device, what string, replace bool) error {
	switch {
	case owner == htb.PortUplink:
		return fmt.Errorf("%s is an uplink of weir agent, which shares it out", device)
	case owner == htb.PortForeign && !replace:
		return fmt.Errorf("%s carries a %s that Weir did not configure: --replace puts it aside, weir sdn down puts it back", device, what)
	}
	return nil
}

// prepare returns the device for a port's queues, or an error that says why queues are
// impossible there.
func (t *trees) prepare(p port, replace bool) (at place, err error) {
	if p.datapath == netdev {
		return at, errors.New("with --qos linux-noop the queues are the kernel's, to which datapath_type=netdev sends nothing: " + useKernelDatapath(p.bridge))
	}
	if at.link, err = p.device.local(); err != nil {
		return at, err
	}
	if at.port, err = t.port(at.link.Index); err != nil {
		return at, err
	}
	var what string
	if at.owner, what, err = at.port.Owner(); err != nil {
		return at, err
	}
	if err := checkOwner(at.owner, at.link.Name, what, replace); err != nil {
		return at, err
	}
	if at.owner == htb.PortForeign {
		saved, err := t.tc.Save(at.link.Index)
		if err != nil {
			return at, fmt.Errorf("put the %s of %s aside: %w", what, at.link.Name, err)
		}
		b, err := json.Marshal(saved)
		if err != nil {
			return at, fmt.Errorf("put the %s of %s aside: %w", what, at.link.Name, err)
		}
		at.aside = string(b)
	}
	return at, nil
}

// put creates or updates a port's queues in the kernel and reads their counters. The QoS
// row must already have the type linux-noop.
func (t *trees) put(at place, p port, change qos.Change, log *slog.Logger) (map[openflow.Queue]qos.Counters, error) {
	if at.owner == htb.PortSwitch || at.owner == htb.PortForeign {
		if err := at.port.Clear(); err != nil {
			return nil, fmt.Errorf("make queues on %s: %w", at.link.Name, err)
		}
	}
	tree := htb.PortTree{RateBPS: change.RateBPS, MTUBytes: uint32(at.link.MTU)}
	var ids []int
	for _, q := range change.Queues {
		tree.Queues = append(tree.Queues, htb.PortQueue{ID: q.ID, MinBPS: q.MinBPS, MaxBPS: q.MaxBPS, Priority: q.Priority})
		ids = append(ids, q.ID)
	}
	changed, err := at.port.Apply(tree)
	if err != nil {
		return nil, fmt.Errorf("make queues on %s: %w", at.link.Name, err)
	}
	if changed {
		log.Info("queues changed in the kernel", "port", p.name, "device", at.link.Name)
	}
	now, err := at.port.Counters(ids)
	if err != nil {
		return nil, fmt.Errorf("count the queues of %s: %w", at.link.Name, err)
	}
	return t.count(p.at, time.Now(), now), nil
}

// count adds a port's new counters to its sums. A queue whose byte counter fell was
// recreated; packet counters may also wrap.
func (t *trees) count(at topology.Port, now time.Time, queues map[int]htb.PortCounters) map[openflow.Queue]qos.Counters {
	before := t.counted[at]
	one := counted{at: now, queues: queues, totals: map[openflow.Queue]qos.Counters{}}
	seconds := now.Sub(before.at).Seconds()
	for id, q := range queues {
		old, known := before.queues[id]
		if !known || q.SentBytes < old.SentBytes {
			old = htb.PortCounters{}
		}
		total := before.totals[openflow.Queue(id)]
		if known && seconds > 0 {
			total.RateBPS = float64(q.SentBytes-old.SentBytes) * 8 / seconds
		}
		total.SentBytes += q.SentBytes - old.SentBytes
		total.SentPackets += uint64(q.SentPackets - old.SentPackets)
		total.DroppedPackets += uint64(q.DroppedPackets - old.DroppedPackets)
		one.totals[openflow.Queue(id)] = total
	}
	if t.counted == nil {
		t.counted = map[topology.Port]counted{}
	}
	t.counted[at] = one
	return one.totals
}

// ovsPatience is how long to wait for Open vSwitch to follow its database. It removes a
// port's queueing after its row is deleted, and would otherwise remove the restored
// queueing.
const ovsPatience = 3 * time.Second

// giveBack removes Weir's queues from a device whose row was deleted, and restores the
// earlier queueing. It first waits up to patience for Open vSwitch to remove the queueing
// itself.
func (t *trees) giveBack(ctx context.Context, ifindex int, aside string, patience time.Duration) error {
	at, err := t.port(ifindex)
	if err != nil {
		return err
	}
	owner, _, err := at.Owner()
	for end := time.Now().Add(patience); err == nil && (owner == htb.PortOurs || owner == htb.PortSwitch) && time.Now().Before(end); {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		owner, _, err = at.Owner()
	}
	if err == nil && owner == htb.PortOurs {
		owner, err = htb.PortFree, at.Clear()
	}
	if err != nil || aside == "" || owner != htb.PortFree {
		return err
	}
	var saved []kernel.SavedObject
	if err := json.Unmarshal([]byte(aside), &saved); err != nil {
		return fmt.Errorf("restore the previous queueing: %w", err)
	}
	if err := t.tc.Restore(ifindex, saved); err != nil {
		return fmt.Errorf("restore the previous queueing: %w", err)
	}
	return nil
}

// abandon restores devices whose ports were deleted from the database.
func (t *trees) abandon(ctx context.Context, tables *tables) error {
	var errs []error
	for was, aside := range tables.abandoned() {
		link, err := net.InterfaceByName(was.name)
		if err != nil || !strings.EqualFold(link.HardwareAddr.String(), was.mac) { // device gone, or of another host
			continue
		}
		if err := t.giveBack(ctx, link.Index, aside, 0); err != nil {
			errs = append(errs, fmt.Errorf("give %s back: %w", was.name, err))
		}
	}
	return errors.Join(errs...)
}

// useKernelDatapath returns advice for a bridge whose packets bypass the kernel's queues.
func useKernelDatapath(bridge string) string {
	return "use the kernel datapath (ovs-vsctl set bridge " + bridge + " datapath_type=system)"
}
