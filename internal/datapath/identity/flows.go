package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Limits of bpf/intf.h.
const (
	flowWays = int(flowWeirFlowLimitWEIR_WAYS)
	flowKeys = int(flowWeirFlowKeyWEIR_FLOW_KEYS)
	// FlowPorts is the number of TCP and UDP ports together.
	FlowPorts = int(flowWeirFlowLimitWEIR_PORTS)
	// FlowNodes and FlowTrees bound the size of a classifier, and FlowWords its number of features.
	// The place of a node's feature is below FlowWords; FlowLeaf marks a leaf.
	FlowNodes = int(flowWeirFlowLimitWEIR_MAX_NODES)
	FlowTrees = int(flowWeirFlowLimitWEIR_MAX_TREES)
	FlowWords = int(flowWeirFlowLimitWEIR_WORDS)
	FlowLeaf  = 0xff
)

// Flows are the kernel's flow tables, one for each container whose traffic class is ClassAuto, and
// the classifier for verdicts (bpf/flow.h). They belong to the programs at taps and uplinks, which
// continue when the agent is dead; a new agent finds them through those programs. All uplinks and
// taps of an agent share one Flows.
//
// Only reading is safe for concurrent use.
type Flows struct {
	spec *ebpf.CollectionSpec
	// specs are the map specifications, by name.
	specs map[string]*ebpf.MapSpec

	tables, configs, counts, trees, clock, senders *ebpf.Map
	// treesID distinguishes programs that use these maps from programs that use others.
	treesID ebpf.MapID
	keys    [flowKeys]uint64
	// tags identify this version of the programs, by name.
	tags map[string]string
}

// OpenFlows adopts the flow maps of the classifier at one of these devices, or makes new ones.
// Errors: no memory for the maps.
func OpenFlows(uplinks ...int) (*Flows, error) {
	spec, err := loadFlow()
	if err != nil {
		return nil, err
	}
	uplink, err := loadUplink()
	if err != nil {
		return nil, err
	}
	f := &Flows{spec: spec, specs: maps.Clone(spec.Maps)}
	f.specs[uplinkMapSenderTable] = uplink.Maps[uplinkMapSenderTable]
	for i := range f.keys {
		f.keys[i] = rand.Uint64()
	}
	for _, ifindex := range uplinks {
		if found, err := f.adopt(ifindex); err != nil || found {
			return f, err
		}
	}
	for name, m := range f.places() {
		if *m, err = ebpf.NewMap(f.specs[name]); err != nil {
			return nil, errors.Join(fmt.Errorf("make map %s: %w", name, err), f.Close())
		}
	}
	return f, f.identify()
}

// adopt takes the maps of the classifier at a device. It returns false if there is none or its maps
// have another version.
func (f *Flows) adopt(ifindex int) (bool, error) {
	program, err := kernel.Hook{Ifindex: ifindex, Egress: true}.Find(uplinkProgWeirUplink)
	if err != nil || program == nil {
		return false, err
	}
	defer program.Close()
	for name, m := range f.places() {
		if *m, err = mapOf(program, name); err != nil || *m == nil || f.specs[name].Compatible(*m) != nil {
			return false, errors.Join(err, f.Close())
		}
	}
	return true, f.identify()
}

func (f *Flows) identify() error {
	info, err := f.trees.Info()
	if err != nil {
		return fmt.Errorf("ask for a map's ID: %w", err)
	}
	f.treesID, _ = info.ID()
	return nil
}

func (f *Flows) places() map[string]**ebpf.Map {
	return map[string]**ebpf.Map{
		flowMapFlowTables: &f.tables, flowMapFlowConfigs: &f.configs,
		flowMapFlowCounts: &f.counts, flowMapTrees: &f.trees, flowMapFlowClock: &f.clock,
		uplinkMapSenderTable: &f.senders,
	}
}

// shared returns the maps by name.
func (f *Flows) shared() map[string]*ebpf.Map {
	shared := map[string]*ebpf.Map{}
	for name, m := range f.places() {
		shared[name] = *m
	}
	return shared
}

// FlowNode is a tree node in the form that the programs walk (struct weir_node).
type FlowNode struct {
	// Place is the place of the feature's value: its code, from 32 on its code - 16; FlowLeaf for a
	// leaf.
	Place, Type, Level              uint8
	_                               uint8
	Threshold                       uint32
	Left, Right                     uint16
	TypeConfidence, LevelConfidence uint16
}

// FlowClassifier is a classifier in the kernel's form.
type FlowClassifier struct {
	Nodes []FlowNode
	// Roots are the root nodes of each stage's trees.
	Roots         [2][]uint16
	MinConfidence uint16
	// Ports is the port category of each port: TCP's ports first, then UDP's.
	Ports []uint8
}

// classifierHead precedes the nodes in struct weir_classifier.
type classifierHead struct {
	Roots                 [2][FlowTrees]uint16
	Trees                 [2]uint32
	MinConfidence, Unused uint32
}

// SetClassifier replaces the classifier atomically. Flows keep their verdicts; later verdicts come
// from the new classifier. Errors: a classifier that is too large; no memory.
func (f *Flows) SetClassifier(c FlowClassifier) error {
	if len(c.Nodes) > FlowNodes || len(c.Ports) != FlowPorts || len(c.Roots[0]) > FlowTrees || len(c.Roots[1]) > FlowTrees {
		return fmt.Errorf("set classifier: %d nodes, %d and %d trees, %d ports: there is room for %d, %d, %d",
			len(c.Nodes), len(c.Roots[0]), len(c.Roots[1]), len(c.Ports), FlowNodes, FlowTrees, FlowPorts)
	}
	head := classifierHead{MinConfidence: uint32(c.MinConfidence)}
	for i, roots := range c.Roots {
		head.Trees[i] = uint32(copy(head.Roots[i][:], roots))
	}
	image, err := binary.Append(nil, binary.NativeEndian, head)
	if err == nil {
		image, err = binary.Append(image, binary.NativeEndian, c.Nodes)
	}
	if err != nil {
		return fmt.Errorf("set classifier: %w", err)
	}
	nodes := binary.Size(head) + FlowNodes*binary.Size(FlowNode{})
	image = append(image, make([]byte, nodes-len(image))...)
	image = append(image, c.Ports...)
	inner, err := ebpf.NewMap(f.spec.Maps[flowMapTrees].InnerMap)
	if err != nil {
		return fmt.Errorf("set classifier: make its map: %w", err)
	}
	defer inner.Close()
	if err := inner.Update(uint32(0), image, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("set classifier: %w", err)
	}
	if err := f.trees.Update(uint32(0), inner, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("set classifier: %w", err)
	}
	return nil
}

// OpenTable opens a table of flows entries, rounded up to a power of two, for a number, and
// replaces an existing table. Errors: no memory.
func (f *Flows) OpenTable(number uint16, flows int) error {
	buckets := 1 << bits.Len(uint(max(1, (flows+flowWays-1)/flowWays)-1))
	spec := f.spec.Maps[flowMapFlowTables].InnerMap.Copy()
	spec.MaxEntries = uint32(buckets)
	table, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("make the flow table of number %d: %w", number, err)
	}
	defer table.Close()
	err = f.configure(number, func(c *flowWeirFlowConfig) {
		c.Keys, c.BucketMask, c.SinceMs = f.keys, uint32(buckets-1), sinceMS()
	})
	if err != nil {
		return err
	}
	if err := f.openSenders(); err != nil {
		return err
	}
	if err := f.counts.Update(uint32(number), flowWeirFlowCounts{}, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("set up the flow table of number %d: %w", number, err)
	}
	if err := f.tables.Update(uint32(number), table, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("set up the flow table of number %d: %w", number, err)
	}
	return nil
}

// TableFlows returns the size of a number's table; 0 if it has none. It reads the number's
// configuration first: every look-up in a map of maps makes Linux 6.1 wait for a grace period
// (kernel/bpf/syscall.c, maybe_wait_bpf_programs), which would take minutes for all numbers.
func (f *Flows) TableFlows(number uint16) (int, error) {
	var config flowWeirFlowConfig
	if err := f.configs.Lookup(uint32(number), &config); err != nil {
		return 0, fmt.Errorf("look for the flow table of number %d: %w", number, err)
	}
	if config.Keys == ([flowKeys]uint64{}) {
		return 0, nil
	}
	table, err := f.table(number)
	if err != nil || table == nil {
		return 0, err
	}
	defer table.Close()
	return int(table.MaxEntries()) * flowWays, nil
}

// configure updates the flow configuration of a number.
func (f *Flows) configure(number uint16, set func(*flowWeirFlowConfig)) error {
	var have flowWeirFlowConfig
	if err := f.configs.Lookup(uint32(number), &have); err != nil {
		return fmt.Errorf("read the flow configuration of number %d: %w", number, err)
	}
	want := have
	set(&want)
	if want == have {
		return nil
	}
	if err := f.configs.Update(uint32(number), want, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("set the flow configuration of number %d: %w", number, err)
	}
	return nil
}

// SetTrustDSCP sets whether the DSCP of a number's packets, as the container sends them, selects
// their class (bpf/dscp.h). Packets whose DSCP selects none have the class of their flow. The
// setting may precede OpenTable, and ends with CloseTable.
func (f *Flows) SetTrustDSCP(number uint16, trust bool) error {
	return f.configure(number, func(c *flowWeirFlowConfig) { c.TrustDscp = flag(trust) })
}

func flag(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

// CloseTable removes a number's table and its flows.
func (f *Flows) CloseTable(number uint16) error {
	if err := f.tables.Delete(uint32(number)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove the flow table of number %d: %w", number, err)
	}
	if err := f.configs.Update(uint32(number), flowWeirFlowConfig{}, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("remove the flow table of number %d: %w", number, err)
	}
	return nil
}

// table opens the table of a number; nil if it has none.
func (f *Flows) table(number uint16) (*ebpf.Map, error) {
	var table *ebpf.Map
	err := f.tables.Lookup(uint32(number), &table)
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the flow table of number %d: %w", number, err)
	}
	return table, nil
}

// FlowCounts are the event counters of a number's table.
type FlowCounts struct {
	// Created counts new flows; Evicted counts those that replaced the longest silent flow.
	Created, Evicted uint64
	// Lost counts packets that started a flow without finding room; Unknown counts packets of no
	// flow. Refused counts packets from outside that would have replaced a flow that the container
	// started.
	Lost, Unknown, Refused uint64
}

// Counts returns a number's event counters since its table was opened.
func (f *Flows) Counts(number uint16) (FlowCounts, error) {
	var c flowWeirFlowCounts
	if err := f.counts.Lookup(uint32(number), &c); err != nil {
		return FlowCounts{}, fmt.Errorf("read the flow counts of number %d: %w", number, err)
	}
	return FlowCounts{Created: c.Created, Evicted: c.Evicted, Lost: c.Lost, Unknown: c.Unknown, Refused: c.Refused}, nil
}

// Close closes the maps. The programs keep using them.
func (f *Flows) Close() error {
	var errs []error
	for _, m := range f.places() {
		if *m != nil {
			errs = append(errs, (*m).Close())
			*m = nil
		}
	}
	return errors.Join(errs...)
}
