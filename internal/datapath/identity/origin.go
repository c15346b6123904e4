package identity

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Origins tracks the network namespaces that packets at the uplinks come from, for containers with
// a device on an uplink (bpf/origin.bpf.c). While it watches, a packet without a socket of a known
// cgroup gets the number of its namespace, and its tag is ignored. A packet from a namespace
// without a number is of unknown origin: it belongs to the host class and has a low rate limit.
//
// All uplinks of an agent share one Origins, and with it the ring of their wake-ups. It ends with Close or
// with the process.
type Origins struct {
	origins, deferred, namespaces, unknown *ebpf.Map
	wakeups                                *ebpf.Map
	waker                                  *ringbuf.Reader // nil until Wakeups
	programs                               []*ebpf.Program // none if the kernel cannot load them
	tracing                                []link.Link     // none while not watching
	flows                                  *Flows          // nil for none
}

// ShareFlows makes classifiers that are opened later use flows.
func (o *Origins) ShareFlows(flows *Flows) { o.flows = flows }

// NewOrigins prepares to watch. If the kernel cannot watch (it lacks CONFIG_DEBUG_INFO_BTF or
// CONFIG_BPF_EVENTS, or forbids it), Watch returns that error. Errors: no memory for the maps.
func NewOrigins() (*Origins, error) {
	spec, err := readUplink()
	if err != nil {
		return nil, err
	}
	o := &Origins{}
	for name, m := range o.places() {
		if *m, err = ebpf.NewMap(spec.Maps[name]); err != nil {
			return nil, errors.Join(fmt.Errorf("make map %s: %w", name, err), o.Close())
		}
	}
	return o, nil
}

// ProbeOrigins returns an error if this kernel cannot watch origins.
func ProbeOrigins() error {
	o, err := NewOrigins()
	if err != nil {
		return err
	}
	return errors.Join(o.Watch(), o.Close())
}

// places returns the fields that hold the maps, by name.
func (o *Origins) places() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		uplinkMapOrigins: &o.origins, uplinkMapDeferred: &o.deferred,
		uplinkMapNamespaces: &o.namespaces, uplinkMapUnknownNetns: &o.unknown,
		uplinkMapWakeups: &o.wakeups,
	}
}

// shared returns the maps that the classifiers at the uplinks also use.
func (o *Origins) shared() map[string]*ebpf.Map {
	maps := o.own()
	if o.flows != nil {
		for name, m := range o.flows.shared() {
			maps[name] = m
		}
	}
	return maps
}

// own returns the maps by name.
func (o *Origins) own() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for name, m := range o.places() {
		maps[name] = *m
	}
	return maps
}

// Watch starts watching, for uplinks in the calling thread's network namespace. Each uplink also
// needs Uplink.LimitUnknownOrigins.
func (o *Origins) Watch() error {
	if len(o.tracing) > 0 {
		return nil
	}
	if len(o.programs) == 0 {
		if err := o.load(); err != nil {
			return fmt.Errorf("watch origins: %w", err)
		}
	}
	for _, program := range o.programs {
		tracing, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return errors.Join(fmt.Errorf("watch origins: attach to a tracepoint: %w", err), o.Unwatch())
		}
		o.tracing = append(o.tracing, tracing)
	}
	return nil
}

func (o *Origins) load() error {
	netns, err := kernel.NetNSIdentity(kernel.CurrentNetNS)
	if err != nil {
		return err
	}
	spec, err := loadOrigin()
	if err != nil {
		return err
	}
	if err := spec.Variables[originVarUplinkNetns].Set(uint32(netns.Inode)); err != nil {
		return fmt.Errorf("set %s: %w", originVarUplinkNetns, err)
	}
	var objects struct {
		Start *ebpf.Program `ebpf:"weir_origin_start"`
		End   *ebpf.Program `ebpf:"weir_origin_end"`
	}
	err = load(spec, &objects, map[string]*ebpf.Map{originMapOrigins: o.origins, originMapDeferred: o.deferred})
	if err != nil {
		return fmt.Errorf("load program: %w", err)
	}
	// Attach the program that starts a note last, and detach it first.
	o.programs = []*ebpf.Program{objects.End, objects.Start}
	return nil
}

// Unwatch stops watching, and its cost.
func (o *Origins) Unwatch() error {
	var errs []error
	for i := len(o.tracing) - 1; i >= 0; i-- {
		errs = append(errs, o.tracing[i].Close())
	}
	o.tracing = nil
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop watching origins: %w", err)
	}
	return nil
}

// Set assigns packets from the network namespace with that inode to number. NumberNone means that
// their tags decide, as for the host's own packets.
func (o *Origins) Set(netns uint32, number uint16) error {
	if err := o.namespaces.Update(netns, uint32(number), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("assign a network namespace: %w", err)
	}
	return nil
}

// Forget makes a network namespace an unknown origin.
func (o *Origins) Forget(netns uint32) error {
	if err := o.namespaces.Delete(netns); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget a network namespace: %w", err)
	}
	return nil
}

// UnknownOrigins returns the inodes of unassigned network namespaces that packets came from since
// the last call; a very long list may be incomplete.
func (o *Origins) UnknownOrigins() ([]uint32, error) {
	var list []uint32
	var netns, value uint32
	entries := o.unknown.Iterate()
	for entries.Next(&netns, &value) {
		list = append(list, netns)
	}
	for _, netns := range list {
		_ = o.unknown.Delete(netns) // already gone is fine
	}
	// A change during the iteration only postpones some entries to the next call.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return list, fmt.Errorf("read which network namespaces are unknown: %w", err)
	}
	return list, nil
}

// Close stops watching for good.
func (o *Origins) Close() error {
	errs := []error{o.Unwatch()}
	if o.waker != nil {
		errs = append(errs, o.waker.Close())
	}
	for _, program := range o.programs {
		errs = append(errs, program.Close())
	}
	for _, m := range o.own() {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// LimitUnknownOrigins limits the sum of packets of unknown origin to a rate, in bits per second. 0
// means that origins are not watched.
func (u *Uplink) LimitUnknownOrigins(bps uint64) error {
	var byteNS uint64
	if bps > 0 {
		byteNS = max(1, 8e9/bps)
	}
	return u.globals.set(uplinkVarUnknownByteNs, binary.NativeEndian.AppendUint64(nil, byteNS))
}
