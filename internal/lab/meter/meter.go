// Package meter counts, exactly and per container, the bytes that arrive at
// the neighbour of a link under test.
//
// A small BPF program (bpf/meter.bpf.c) runs on ingress of the neighbour's
// interface. Containers are told apart by the destination port they send to,
// which is the one thing NAT leaves alone; within VXLAN, it is the inner port.
// Bytes are bytes on the wire: L2
// frames without FCS, every segment of a GSO packet with its own headers,
// which is what tc counts too.
//
// Totals are read from memory shared with the kernel. Time series are filled
// by the program itself, in bins of the packet's arrival time: no sampler
// thread can come late, on a machine that the traffic keeps busy.
package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -tags linux -target bpfel meter ../../../bpf/meter.bpf.c -- -O2 -g -Wall -Werror -I/usr/include/x86_64-linux-gnu -I/usr/include/aarch64-linux-gnu

// counterBytes is the size of struct counter in bpf/meter.bpf.c; a test
// compares it with the compiled object.
const counterBytes = 16

// Options says what to count.
type Options struct {
	// Interface is the neighbour's interface, in the network namespace of
	// the calling thread.
	Interface string
	// BasePort is the destination port of slot 0; slot i is BasePort+i.
	BasePort uint16
	// Slots is the number of ports counted one by one.
	Slots int
	// BinWidth and Bins size the time series, per slot. Bins 0: none. The
	// series takes (Slots+1)*Bins*8 bytes of memory.
	BinWidth time.Duration
	Bins     int
}

// Counter is what one slot received.
type Counter struct {
	Bytes   uint64 // on the wire
	Packets uint64 // on the wire: segments, not GSO packets
}

// Snapshot is the state of all counters at one time.
type Snapshot struct {
	MonotonicNS int64
	// Slots has one counter per slot.
	Slots []Counter
	// Other is everything that is not for one of the slots' ports.
	Other Counter
}

// Meter counts until it is closed.
type Meter struct {
	options Options
	objects meterObjects
	hook    *kernel.Hook // nil while nothing is attached
	totals  *ebpf.Memory
	series  *ebpf.Memory
	buffer  []byte
}

// programName is the name of the program in bpf/meter.bpf.c.
const programName = "meter"

// New loads the program and attaches it to options.Interface, which must be
// in the calling thread's network namespace.
func New(options Options) (*Meter, error) {
	if options.Slots < 1 || int(options.BasePort)+options.Slots > 1<<16 {
		return nil, fmt.Errorf("meter %d ports from port %d: not a range of ports", options.Slots, options.BasePort)
	}
	if options.Bins > 0 && options.BinWidth <= 0 {
		return nil, errors.New("meter a series: the width of a bin must be positive")
	}
	device, err := kernel.LinkByName(options.Interface)
	if err != nil {
		return nil, fmt.Errorf("find interface %s: %w", options.Interface, err)
	}
	spec, err := loadMeter()
	if err != nil {
		return nil, fmt.Errorf("parse the meter's BPF object: %w", err)
	}
	slots := uint32(options.Slots) + 1
	spec.Maps["totals"].MaxEntries = slots
	spec.Maps["series"].MaxEntries = max(1, slots*uint32(options.Bins))
	values := map[string]any{
		"base_port": options.BasePort,
		"slots":     uint32(options.Slots),
		"bin_ns":    uint64(max(options.BinWidth, 1)),
		"bins":      uint32(options.Bins),
	}
	if !device.Ethernet {
		values["link_header_bytes"] = uint32(0)
	}
	for name, value := range values {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of the meter's BPF program: %w", name, err)
		}
	}

	m := &Meter{options: options, buffer: make([]byte, int(slots)*counterBytes)}
	if err := spec.LoadAndAssign(&m.objects, nil); err != nil {
		return nil, fmt.Errorf("load the meter's BPF program: %w", err)
	}
	if err := m.start(device.Index); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func (m *Meter) start(ifindex int) (err error) {
	if m.totals, err = m.objects.Totals.Memory(); err != nil {
		return fmt.Errorf("map the meter's totals: %w", err)
	}
	if m.series, err = m.objects.Series.Memory(); err != nil {
		return fmt.Errorf("map the meter's series: %w", err)
	}
	hook := kernel.Hook{Ifindex: ifindex}
	if err := hook.Attach(m.objects.Meter, nil); err != nil {
		return fmt.Errorf("attach the meter to interface %s: %w", m.options.Interface, err)
	}
	m.hook = &hook
	return nil
}

// Close detaches the program and frees everything; like New, it must run in
// the network namespace of the interface. Nothing may be read afterwards.
// Closing twice is allowed.
func (m *Meter) Close() error {
	var detached error
	if m.hook != nil {
		detached = m.hook.Detach(programName)
		m.hook = nil
	}
	return errors.Join(detached, m.objects.Close())
}

// Snapshot reads all counters.
func (m *Meter) Snapshot() (Snapshot, error) {
	s := Snapshot{Slots: make([]Counter, m.options.Slots)}
	err := m.SnapshotInto(&s)
	return s, err
}

// SnapshotInto reads all counters into s without allocating, for samplers.
// s.Slots must have room for every slot.
func (m *Meter) SnapshotInto(s *Snapshot) error {
	s.MonotonicNS = monotonicNS()
	if _, err := m.totals.ReadAt(m.buffer, 0); err != nil {
		return fmt.Errorf("read the meter's totals: %w", err)
	}
	for i := range s.Slots {
		s.Slots[i] = decodeCounter(m.buffer[i*counterBytes:])
	}
	s.Other = decodeCounter(m.buffer[m.options.Slots*counterBytes:])
	return nil
}

func decodeCounter(b []byte) Counter {
	return Counter{
		Bytes:   binary.NativeEndian.Uint64(b),
		Packets: binary.NativeEndian.Uint64(b[8:]),
	}
}

// monotonicNS returns the time of CLOCK_MONOTONIC, the clock of every timestamp of this package
// and of bpf_ktime_get_ns.
func monotonicNS() int64 {
	var ts unix.Timespec
	// It cannot fail: the clock exists and the pointer is valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}
