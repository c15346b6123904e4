package identity

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weir-project/weir/internal/kernel"
)

// Origins are the network namespaces that packets come to the uplinks from,
// where a container has a device on one (bpf/origin.bpf.c). While they are
// watched, a packet without a socket of a known cgroup belongs to whom its
// namespace is said to belong to, whatever tag it carries; one from a namespace
// of which nothing was said is of unknown origin: it is the host's and has a narrow
// limit.
//
// All uplinks of an agent share one. It ends with Close or the process.
type Origins struct {
	origins, deferred, namespaces, unknown *ebpf.Map
	programs                               []*ebpf.Program // none where the kernel cannot
	tracing                                []link.Link     // none while nothing is watched
	flows                                  *Flows          // nil for none
}

// ShareFlows has the classifiers that are opened from now on use flows.
func (o *Origins) ShareFlows(flows *Flows) { o.flows = flows }

// NewOrigins prepares to watch. Where the kernel cannot (it lacks
// CONFIG_DEBUG_INFO_BTF or CONFIG_BPF_EVENTS, or does not allow it), that is
// what Watch returns. Errors: no memory for the maps.
func NewOrigins() (*Origins, error) {
	spec, err := loadUplink()
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

// ProbeOrigins says whether this kernel can watch origins.
func ProbeOrigins() error {
	o, err := NewOrigins()
	if err != nil {
		return err
	}
	return errors.Join(o.Watch(), o.Close())
}

// places are where the maps are kept, by name.
func (o *Origins) places() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		uplinkMapOrigins: &o.origins, uplinkMapDeferred: &o.deferred,
		uplinkMapNamespaces: &o.namespaces, uplinkMapUnknownNetns: &o.unknown,
	}
}

// shared are the maps that the classifiers at the uplinks use as well.
func (o *Origins) shared() map[string]*ebpf.Map {
	maps := o.own()
	if o.flows != nil {
		for name, m := range o.flows.shared() {
			maps[name] = m
		}
	}
	return maps
}

// own are the maps by name.
func (o *Origins) own() map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for name, m := range o.places() {
		maps[name] = *m
	}
	return maps
}

// Watch begins to watch, for uplinks in the calling thread's network namespace.
// Each needs Uplink.LimitUnknownOrigins besides.
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
	// What begins the note comes last and goes first.
	o.programs = []*ebpf.Program{objects.End, objects.Start}
	return nil
}

// Unwatch ends watching, and what it costs.
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

// Set says that packets from the network namespace with that inode belong to
// number; with NumberNone they are judged by their tags, as the host's own.
func (o *Origins) Set(netns uint32, number uint16) error {
	if err := o.namespaces.Update(netns, uint32(number), ebpf.UpdateAny); err != nil {
		return fmt.Errorf("assign a network namespace: %w", err)
	}
	return nil
}

// Forget makes a network namespace one of unknown origin.
func (o *Origins) Forget(netns uint32) error {
	if err := o.namespaces.Delete(netns); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget a network namespace: %w", err)
	}
	return nil
}

// UnknownOrigins are the inodes of network namespaces that packets came from since
// it was last called, while nothing was said of them; not all of them if there
// are very many.
func (o *Origins) UnknownOrigins() ([]uint32, error) {
	var list []uint32
	var netns, value uint32
	entries := o.unknown.Iterate()
	for entries.Next(&netns, &value) {
		list = append(list, netns)
	}
	for _, netns := range list {
		_ = o.unknown.Delete(netns) // not there: as well
	}
	// That it was changed meanwhile only means that some are for the next time.
	if err := entries.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return list, fmt.Errorf("read which network namespaces are unknown: %w", err)
	}
	return list, nil
}

// Close ends watching for good.
func (o *Origins) Close() error {
	errs := []error{o.Unwatch()}
	for _, program := range o.programs {
		errs = append(errs, program.Close())
	}
	for _, m := range o.own() {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// LimitUnknownOrigins says that origins are watched, and limits packets of unknown origin to a rate
// all together; 0 says that they are not.
func (u *Uplink) LimitUnknownOrigins(bps uint64) error {
	var byteNS uint64
	if bps > 0 {
		byteNS = max(1, 8e9/bps)
	}
	return u.globals.set(uplinkVarUnknownByteNs, binary.NativeEndian.AppendUint64(nil, byteNS))
}
