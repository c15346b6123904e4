package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

type operations = []ovsdb.Operation

// builder returns the operations of one transaction.
type builder func(client.Client) (operations, error)

// transact executes a builder's operations atomically.
func transact(ctx context.Context, c client.Client, build builder) error {
	todo, err := build(c)
	if err != nil || len(todo) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, transactTimeout)
	defer cancel()
	results, err := c.Transact(ctx, todo...)
	if err != nil {
		return fmt.Errorf("change the database: %w", err)
	}
	if failed, err := ovsdb.CheckOperationResults(results, todo); err != nil {
		for _, f := range failed {
			var changed *ovsdb.TimedOut
			if errors.As(f, &changed) {
				return errors.New("change the database: the port has changed or is gone meanwhile")
			}
		}
		return fmt.Errorf("change the database: %w", err)
	}
	return nil
}

// tables are the database's rows by UUID.
type tables struct {
	bridges    []bridgeRow
	ports      map[string]portRow
	interfaces map[string]interfaceRow
	qos        map[string]qosRow
	queues     map[string]queueRow
}

func read(ctx context.Context, c client.Client) (*tables, error) {
	var (
		t          tables
		ports      []portRow
		interfaces []interfaceRow
		rows       []qosRow
		queues     []queueRow
	)
	for _, list := range []any{&t.bridges, &ports, &interfaces, &rows, &queues} {
		if err := c.List(ctx, list); err != nil {
			return nil, fmt.Errorf("read the database: %w", err)
		}
	}
	t.ports = byUUID(ports, func(r portRow) string { return r.UUID })
	t.interfaces = byUUID(interfaces, func(r interfaceRow) string { return r.UUID })
	t.qos = byUUID(rows, func(r qosRow) string { return r.UUID })
	t.queues = byUUID(queues, func(r queueRow) string { return r.UUID })
	return &t, nil
}

func byUUID[T any](rows []T, uuid func(T) string) map[string]T {
	out := map[string]T{}
	for _, r := range rows {
		out[uuid(r)] = r
	}
	return out
}

// row returns a QoS row with its queues in the form of package qos, or nil if it is gone.
func (t *tables) row(uuid string) *qos.Row {
	r, ok := t.qos[uuid]
	if !ok {
		return nil
	}
	out := &qos.Row{UUID: r.UUID, Type: r.Type, Config: r.OtherConfig, External: r.ExternalIDs, Queues: map[int]qos.QueueRow{}}
	for id, queue := range r.Queues {
		out.Queues[id] = qos.QueueRow{UUID: queue, Config: t.queues[queue].OtherConfig}
	}
	return out
}

// port is a port that can have queues.
type port struct {
	row  portRow
	name string
	at   topology.Port
	seen qos.Port
	// bridge and datapath are the name and datapath_type of its bridge.
	bridge, datapath string
	device           device
	// aside is the device's earlier queueing, saved to be restored; empty if there was
	// none.
	aside string
}

// ofLocal is the OpenFlow number of a bridge's own port.
const ofLocal = 65534

// controlled returns the ports with an OpenFlow number on switches of this controller.
func (t *tables) controlled(ours func(topology.DPID) bool) []port {
	var out []port
	for _, b := range t.bridges {
		if b.DatapathID == nil {
			continue
		}
		dpid, err := strconv.ParseUint(*b.DatapathID, 16, 64)
		if err != nil || !ours(topology.DPID(dpid)) {
			continue
		}
		for _, uuid := range b.Ports {
			row := t.ports[uuid]
			for _, member := range row.Interfaces {
				i := t.interfaces[member]
				if i.OFPort == nil || *i.OFPort < 1 || *i.OFPort == ofLocal {
					continue
				}
				p := port{row: row, name: row.Name, at: topology.Port{Switch: topology.DPID(dpid), Number: uint32(*i.OFPort)}, bridge: b.Name, datapath: b.DatapathType, device: i.device()}
				p.seen = qos.Port{Name: row.Name, Kind: i.Type, LinkSpeedBPS: i.linkSpeedBPS()}
				if len(row.Interfaces) > 1 {
					p.name, p.seen.Name, p.seen.Bond = i.Name, i.Name, row.Name
				}
				if row.QoS != nil {
					p.seen.QoS = t.row(*row.QoS)
				}
				out = append(out, p)
			}
		}
	}
	return out
}

// isBridge returns a function that reports whether a switch is a bridge.
func (t *tables) isBridge(name string) func(topology.DPID) bool {
	for _, b := range t.bridges {
		if b.Name == name && b.DatapathID != nil {
			is, err := strconv.ParseUint(*b.DatapathID, 16, 64)
			return func(d topology.DPID) bool { return err == nil && d == topology.DPID(is) }
		}
	}
	return func(topology.DPID) bool { return false }
}

func (t *tables) hasBridge(name string) bool {
	return slices.ContainsFunc(t.bridges, func(b bridgeRow) bool { return b.Name == name })
}

// isOn reports whether a bridge has a port.
func (t *tables) isOn(bridge string, row portRow) bool {
	return slices.ContainsFunc(t.bridges, func(b bridgeRow) bool { return b.Name == bridge && slices.Contains(b.Ports, row.UUID) })
}

// linkSpeedBPS returns the speed of an interface's link, or 0 if it is unknown. Virtual devices
// have no link: tap devices report 10 Mbit/s before Linux 6.2 and 10 Gbit/s since, veth devices
// 10 Gbit/s.
func (r interfaceRow) linkSpeedBPS() uint64 {
	if driver := r.Status["driver_name"]; r.LinkSpeed == nil || *r.LinkSpeed < 0 || driver == "tun" || driver == "veth" {
		return 0
	}
	return uint64(*r.LinkSpeed)
}

// device returns the network device of an interface.
func (r interfaceRow) device() device {
	d := device{name: r.Name}
	if r.IfIndex != nil {
		d.ifindex = *r.IfIndex
	}
	if r.MACInUse != nil {
		d.mac = *r.MACInUse
	}
	return d
}

// deviceOf returns the device of a port with one interface, or an empty one for bonds.
func (t *tables) deviceOf(row portRow) device {
	if len(row.Interfaces) != 1 {
		return device{}
	}
	return t.interfaces[row.Interfaces[0]].device()
}

// unchanged makes the transaction fail unless the port still exists with the QoS row that
// was read.
func unchanged(c client.Client, row portRow) (operations, error) {
	now := 0
	wait, err := c.Where(&row).Wait(ovsdb.WaitConditionEqual, &now, &row, &row.QoS)
	return wait, err
}

// external returns the external_ids of a port's QoS row: Weir's mark and the earlier QoS
// row.
func (p port) external(kind string) map[string]string {
	m := map[string]string{}
	if old := p.seen.QoS; old.Ours() {
		maps.Copy(m, old.External)
	} else if old != nil {
		m[qos.BeforeKey] = old.UUID
	}
	m[qos.OwnerKey] = qos.Owner
	if kind == qos.TypeNoop {
		m[qos.DeviceKey], m[qos.AddressKey] = p.device.name, p.device.mac
	}
	if p.aside != "" {
		m[qos.AsideKey] = p.aside
	}
	return m
}

// create adds new QoS and Queue rows to a port.
func create(c client.Client, p port, change qos.Change) (operations, error) {
	todo, err := unchanged(c, p.row)
	if err != nil {
		return nil, err
	}
	row := &qosRow{UUID: "weirqos", Type: change.Type, Queues: map[int]string{}, OtherConfig: change.RateConfig(), ExternalIDs: p.external(change.Type)}
	for _, q := range change.Queues {
		queue := &queueRow{UUID: "weirqueue" + strconv.Itoa(q.ID), OtherConfig: q.Config(), ExternalIDs: map[string]string{qos.OwnerKey: qos.Owner}}
		insert, err := c.Create(queue)
		if err != nil {
			return nil, err
		}
		todo = append(todo, insert...)
		row.Queues[q.ID] = queue.UUID
	}
	insert, err := c.Create(row)
	if err != nil {
		return nil, err
	}
	return appendSet(c, append(todo, insert...), p.row, &row.UUID)
}

// appendSet appends the operation that sets a port's QoS row.
func appendSet(c client.Client, todo operations, row portRow, to *string) (operations, error) {
	changed := row
	changed.QoS = to
	set, err := c.Where(&changed).Update(&changed, &changed.QoS)
	return append(todo, set...), err
}

// update changes the rates of existing rows.
func update(c client.Client, p port, change qos.Change) (operations, error) {
	todo, err := unchanged(c, p.row)
	if err != nil {
		return nil, err
	}
	row := &qosRow{UUID: p.seen.QoS.UUID, OtherConfig: change.RateConfig(), ExternalIDs: p.external(change.Type)}
	set, err := c.Where(row).Update(row, &row.OtherConfig, &row.ExternalIDs)
	if err != nil {
		return nil, err
	}
	todo = append(todo, set...)
	for _, q := range change.Queues {
		queue := &queueRow{UUID: p.seen.QoS.Queues[q.ID].UUID, OtherConfig: q.Config()}
		set, err := c.Where(queue).Update(queue, &queue.OtherConfig)
		if err != nil {
			return nil, err
		}
		todo = append(todo, set...)
	}
	return todo, nil
}

// restore gives a port its earlier QoS row if that still exists, otherwise none.
func restore(c client.Client, t *tables, row portRow) (operations, error) {
	todo, err := unchanged(c, row)
	if err != nil {
		return nil, err
	}
	var to *string
	if before := t.row(*row.QoS).External[qos.BeforeKey]; t.row(before) != nil {
		to = &before
	}
	return appendSet(c, todo, row, to)
}

// abandoned returns the devices with Weir's queues whose ports were deleted, and the
// earlier queueing to restore on each.
func (t *tables) abandoned() map[device]string {
	out := map[device]string{}
	for _, row := range t.qos {
		if name := row.ExternalIDs[qos.DeviceKey]; name != "" && row.ExternalIDs[qos.OwnerKey] == qos.Owner {
			out[device{name: name, mac: row.ExternalIDs[qos.AddressKey]}] = row.ExternalIDs[qos.AsideKey]
		}
	}
	for _, i := range t.interfaces {
		maps.DeleteFunc(out, func(d device, _ string) bool { return d.name == i.Name })
	}
	return out
}

// removeOrphans deletes Weir's rows that no port references. QoS and Queue are root tables,
// whose rows the database never deletes itself.
func (t *tables) removeOrphans(c client.Client) (operations, error) {
	used := map[string]bool{}
	for _, p := range t.ports {
		if p.QoS != nil {
			used[*p.QoS] = true
			for _, queue := range t.qos[*p.QoS].Queues {
				used[queue] = true
			}
		}
	}
	rows, err := deleteUnused(c, t.qos, used, func(r *qosRow) map[string]string { return r.ExternalIDs })
	if err != nil {
		return nil, err
	}
	queues, err := deleteUnused(c, t.queues, used, func(r *queueRow) map[string]string { return r.ExternalIDs })
	return append(rows, queues...), err
}

// deleteUnused deletes Weir's unreferenced rows of one table.
func deleteUnused[R any](c client.Client, rows map[string]R, used map[string]bool, external func(*R) map[string]string) (todo operations, err error) {
	for _, uuid := range slices.Sorted(maps.Keys(rows)) {
		if row := rows[uuid]; !used[uuid] && external(&row)[qos.OwnerKey] == qos.Owner {
			remove, err := c.Where(&row).Delete()
			if err != nil {
				return nil, err
			}
			todo = append(todo, remove...)
		}
	}
	return todo, nil
}

// CheckAddress returns an error if a database address is invalid.
func CheckAddress(address string) error {
	kind, rest, ok := strings.Cut(address, ":")
	if !ok || rest == "" || kind != "unix" && kind != "tcp" {
		return fmt.Errorf("%q is not unix:PATH or tcp:HOST:PORT", address)
	}
	return nil
}
