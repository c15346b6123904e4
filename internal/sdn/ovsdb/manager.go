// Package ovsdb configures the queues of switch ports through Open vSwitch's database (RFC
// 7047), and removes them again. Package qos decides which queues.
//
// All rows of one port change in one transaction. It first checks that the port is
// unchanged since it was read, so a port that vanishes or is reconfigured meanwhile gets no
// partial configuration.
package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/ovn-kubernetes/libovsdb/client"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Options configure a manager.
type Options struct {
	// Address is unix:PATH or tcp:HOST:PORT.
	Address string
	// RateBPS is the rate of every port; 0 means the speed that its link reports.
	RateBPS uint64
	// PortRateBPS overrides RateBPS by port name.
	PortRateBPS map[string]uint64
	Queues      qos.Map
	// Type is qos.TypeHTB (the default) or qos.TypeNoop.
	Type string
	// Replace allows to put aside another program's QoS.
	Replace bool
	// Promised returns the queues of promises at a port; nil: there are none.
	Promised func(topology.Port) []qos.Queue
	// Bridge, unless empty, is a bridge that others control, whose ports get queues by marks: no
	// entries are sent to its switch, and Controls is not called. By is the field of these marks.
	Bridge string
	By     qos.By
	// Controls reports whether a switch accepts changes from this controller.
	Controls func(topology.DPID) bool
	Log      *slog.Logger
}

// RateOf returns the rate of a port that the operator gave, or 0.
func (o *Options) RateOf(port string) uint64 {
	if rate, ok := o.PortRateBPS[port]; ok {
		return rate
	}
	return o.RateBPS
}

// Manager configures the queues of all ports in one database.
type Manager struct {
	options Options
	trees   trees // used by the goroutine of Run only, like control
	control map[topology.DPID]*control

	kick   chan struct{} // has an element if promises changed
	mu     sync.Mutex
	status map[topology.Port]qos.PortState
	looked time.Time // time of status
}

// control is what is known of a switch since this controller began to change it.
type control struct {
	began time.Time
	told  map[promisedQueue]bool // queues that were promised since then
}

// New returns a manager; Run connects it.
func New(o Options) *Manager {
	if o.Type == "" {
		o.Type = qos.TypeHTB
	}
	if o.Promised == nil {
		o.Promised = func(topology.Port) []qos.Queue { return nil }
	}
	return &Manager{options: o, kick: make(chan struct{}, 1), control: map[topology.DPID]*control{}}
}

// Kick has the manager look at promises now.
func (m *Manager) Kick() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Status returns the state of each known port. All states are "unknown" if the database was
// not read for statusAge.
func (m *Manager) Status() map[topology.Port]qos.PortState {
	m.mu.Lock()
	defer m.mu.Unlock()
	age := time.Since(m.looked)
	if age <= statusAge {
		return m.status
	}
	out := map[topology.Port]qos.PortState{}
	for at, state := range m.status {
		state.State, state.Reason = "unknown", "the database at "+m.options.Address+" was last read "+age.Round(time.Second).String()+" ago"
		out[at] = state
	}
	return out
}

// Timers of the database connection.
const (
	connectTimeout  = 5 * time.Second
	transactTimeout = 5 * time.Second
	retryAfter      = time.Second
	lookEvery       = time.Second
	// statusAge is how long a port's state stays valid.
	statusAge = 5 * time.Second
)

// Run configures the queues and repairs them until ctx ends. The queues stay afterwards;
// Remove removes them. Run reconnects to a lost database.
func (m *Manager) Run(ctx context.Context) error {
	defer m.trees.close()
	for said := false; ; {
		c, err := connect(ctx, m.options.Address)
		if err == nil {
			said = false
			m.options.Log.Info("database connected", "ovsdb", m.options.Address)
			err = m.watch(ctx, c)
			c.Close()
		}
		if ctx.Err() != nil {
			return nil
		}
		if !said {
			m.options.Log.Warn("database lost: queues stay as they are", "ovsdb", m.options.Address, "reason", err)
			said = true
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return nil
		}
	}
}

// connect opens a database and starts to mirror its tables.
func connect(ctx context.Context, address string) (client.Client, error) {
	model, err := databaseModel()
	if err != nil {
		return nil, fmt.Errorf("describe the database: %w", err)
	}
	quiet := logr.Discard()
	c, err := client.NewOVSDBClient(model, client.WithEndpoint(address), client.WithLogger(&quiet))
	if err != nil {
		return nil, fmt.Errorf("connect to the database at %s: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := c.Connect(ctx); err != nil {
		return nil, fmt.Errorf("connect to the database at %s: %w (is ovsdb-server running, and is this its address?)", address, cause(err))
	}
	if _, err := c.Monitor(ctx, c.NewMonitor(monitored()...)); err != nil {
		c.Close()
		return nil, fmt.Errorf("read the database at %s: %w", address, err)
	}
	return c, nil
}

// cause returns the reason of a failed connection without the address, which libovsdb and
// package net repeat.
func cause(err error) error {
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		return call.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// watch reconciles on every change until the connection ends.
func (m *Manager) watch(ctx context.Context, c client.Client) error {
	gone := c.DisconnectNotify() // reports only to a waiting receiver
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		if err := m.reconcile(ctx, c); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-m.kick:
		case <-gone:
			return errors.New("the connection ended")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reconcile updates the queues of every port. A failure at one port does not affect the
// others.
func (m *Manager) reconcile(ctx context.Context, c client.Client) error {
	tables, err := readNow(ctx, c)
	if err != nil {
		return err
	}
	status := map[topology.Port]qos.PortState{}
	controls := m.options.Controls
	if m.options.Bridge != "" {
		controls = tables.isBridge(m.options.Bridge)
	}
	ports := tables.controlled(controls)
	m.notice(ports)
	for _, p := range ports {
		state, err := m.reconcilePort(ctx, c, p, m.options.RateOf(p.name))
		if err != nil {
			if !c.Connected() {
				return err
			}
			state = qos.PortState{State: "waiting", Reason: err.Error(), RateBPS: state.RateBPS, PromisableBPS: state.PromisableBPS}
			m.options.Log.Warn("queues not made", "port", p.name, "reason", err)
		}
		status[p.at] = state
	}
	m.mu.Lock()
	m.status, m.looked = status, time.Now()
	m.mu.Unlock()
	if err := m.trees.abandon(ctx, tables); err != nil {
		m.options.Log.Warn("queues not taken away", "reason", err)
	}
	return transact(ctx, c, tables.removeOrphans)
}

// reconcilePort updates the queues of one port. A rate of 0 means the link's speed.
func (m *Manager) reconcilePort(ctx context.Context, c client.Client, p port, rateBPS uint64) (qos.PortState, error) {
	if m.options.Bridge != "" && !p.seen.Device() {
		return qos.PortState{}, nil
	}
	change := qos.Plan(p.seen, qos.Wanted{Type: m.options.Type, RateBPS: rateBPS, Queues: m.options.Queues, Replace: m.options.Replace, Promised: m.promised(p)})
	if m.options.Type != qos.TypeNoop || change.Action == qos.Refuse {
		err := m.apply(ctx, c, p, change)
		return m.byMark(p, stateOf(p, change)), err
	}
	at, err := m.trees.prepare(p, m.options.Replace)
	if err != nil {
		return qos.PortState{State: "refused", Reason: err.Error()}, nil
	}
	if p.aside = at.aside; p.aside != "" && change.Action == qos.Keep { // keep the earlier queueing before it is overwritten
		change.Action = qos.Update
	}
	if err := m.apply(ctx, c, p, change); err != nil {
		return stateOf(p, change), err
	}
	state := stateOf(p, change)
	state.Counters, err = m.trees.put(at, p, change, m.options.Log)
	return m.byMark(p, state), err
}

// notice records which switches this controller changes from now on, and which no longer.
func (m *Manager) notice(ports []port) {
	before := m.control
	m.control = map[topology.DPID]*control{}
	for _, p := range ports {
		d := p.at.Switch
		if m.control[d] == nil {
			m.control[d] = before[d]
		}
		if m.control[d] == nil {
			m.control[d] = &control{began: time.Now(), told: map[promisedQueue]bool{}}
		}
	}
}

// keepPromised is how long the queues of an earlier controller's promises stay, of which the ledger
// has not told yet.
var keepPromised = 30 * time.Second

// promisedQueue is a queue of a promise.
type promisedQueue struct {
	at topology.Port
	id int
}

// promised returns the queues of promises at a port.
func (m *Manager) promised(p port) []qos.Queue {
	list, control := m.options.Promised(p.at), m.control[p.at.Switch]
	for _, q := range list {
		control.told[promisedQueue{p.at, q.ID}] = true
	}
	if time.Since(control.began) < keepPromised && p.seen.QoS.Ours() {
		for _, q := range p.seen.QoS.Promised() {
			if !control.told[promisedQueue{p.at, q.ID}] {
				list = append(list, q)
			}
		}
	}
	return list
}

// readNow reads the mirrored tables after an echo to the server, because the mirror would
// outlive a server that hangs.
func readNow(ctx context.Context, c client.Client) (*tables, error) {
	ctx, cancel := context.WithTimeout(ctx, statusAge/2)
	defer cancel()
	if err := c.Echo(ctx); err != nil {
		return nil, fmt.Errorf("the database does not answer: %w", err)
	}
	return read(ctx, c)
}

// stateOf returns a port's state after a change.
func stateOf(p port, change qos.Change) qos.PortState {
	state := qos.PortState{State: "ok", RateBPS: change.RateBPS, Reason: change.Reason}
	switch {
	case p.seen.Patch():
		state.State = "" // no link, so no queues are missing
		return state
	case change.Action == qos.Refuse:
		state.State = "refused"
		return state
	}
	state.Queues, state.PromisableBPS = map[openflow.Queue]qos.Rates{}, change.PromisableBPS
	for _, q := range change.Queues {
		state.Queues[openflow.Queue(q.ID)] = qos.Rates{MinBPS: q.MinBPS, MaxBPS: q.MaxBPS}
	}
	if p.datapath == netdev {
		state.State = "degraded"
		state.Reason = "the queues are configured, but datapath_type=netdev sends nothing to them: " + useKernelDatapath(p.bridge)
	}
	return state
}

// netdev is Open vSwitch's userspace datapath, which ignores queues.
const netdev = "netdev"

func (m *Manager) apply(ctx context.Context, c client.Client, p port, change qos.Change) error {
	var make builder
	switch change.Action {
	case qos.Create:
		make = func(c client.Client) (operations, error) { return create(c, p, change) }
	case qos.Update:
		make = func(c client.Client) (operations, error) { return update(c, p, change) }
	default:
		return nil
	}
	if err := transact(ctx, c, make); err != nil {
		return err
	}
	m.options.Log.Info("queues made", "port", p.name, "rate", strconv.FormatUint(change.RateBPS, 10))
	return nil
}

// Remove deletes all of Weir's queues from a database, or those of a bridge unless that is empty,
// restores earlier queueing, and returns the names of the ports.
func Remove(ctx context.Context, address, bridge string) ([]string, error) {
	c, err := connect(ctx, address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	tables, err := read(ctx, c)
	if err != nil {
		return nil, err
	}
	var (
		names  []string
		queues trees
	)
	defer queues.close()
	for _, row := range tables.ports {
		if row.QoS == nil || !tables.row(*row.QoS).Ours() || bridge != "" && !tables.isOn(bridge, row) {
			continue
		}
		_ = queues.selectByMark(tables.deviceOf(row), qos.By{}, nil) // of another host, or without a filter
		if err := remove(ctx, c, &queues, tables, row); err != nil {
			return names, fmt.Errorf("give port %s back: %w", row.Name, err)
		}
		names = append(names, row.Name)
	}
	if tables, err = read(ctx, c); err != nil {
		return names, err
	}
	if err := queues.abandon(ctx, tables); err != nil {
		return names, err
	}
	return names, transact(ctx, c, tables.removeOrphans)
}

// byMark has the queues of a port take packets by their marks, where others control the switch, and
// returns the port's state.
func (m *Manager) byMark(p port, state qos.PortState) qos.PortState {
	if m.options.Bridge == "" || state.State != "ok" {
		return state
	}
	if err := m.trees.selectByMark(p.device, m.options.By, m.options.Queues.OfMarks(m.options.By)); err != nil {
		state.State, state.Reason = "degraded", err.Error()
	}
	return state
}

// Once makes the queues of Options.Bridge, and returns the states of its ports by name. It waits a
// moment for Open vSwitch to make what the database says.
func (m *Manager) Once(ctx context.Context) (map[string]qos.PortState, error) {
	c, err := connect(ctx, m.options.Address)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer m.trees.close()
	for end := time.Now().Add(ovsPatience); ; {
		if err := m.reconcile(ctx, c); err != nil {
			return nil, err
		}
		tables, err := read(ctx, c)
		if err != nil {
			return nil, err
		}
		if !tables.hasBridge(m.options.Bridge) {
			return nil, fmt.Errorf("the database at %s has no bridge %s: ovs-vsctl list-br lists them", m.options.Address, m.options.Bridge)
		}
		states, whole := map[string]qos.PortState{}, true
		for _, p := range tables.controlled(tables.isBridge(m.options.Bridge)) {
			state := m.Status()[p.at]
			states[p.name], whole = state, whole && state.State != "degraded"
		}
		if whole || time.Now().After(end) {
			return states, nil
		}
		select {
		case <-time.After(lookEvery / 5):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// remove deletes a port's queues, and for linux-noop also those on its device.
func remove(ctx context.Context, c client.Client, queues *trees, tables *tables, row portRow) error {
	external := tables.row(*row.QoS).External
	name, aside := external[qos.DeviceKey], external[qos.AsideKey]
	ifindex := 0
	if name != "" {
		link, err := tables.deviceOf(row).local()
		switch {
		case err == nil:
			ifindex = link.Index
		case aside != "":
			return fmt.Errorf("what was configured on %s before is to be put back: run this where the switch runs", name)
		}
	}
	if err := transact(ctx, c, func(c client.Client) (operations, error) { return restore(c, tables, row) }); err != nil {
		return err
	}
	if ifindex == 0 {
		return nil
	}
	return queues.giveBack(ctx, ifindex, aside, ovsPatience)
}
