package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/kernel"
)

// Limits of bpf/intf.h.
const (
	flowWays = int(flowWeirFlowLimitWEIR_WAYS)
	flowKeys = int(flowWeirFlowKeyWEIR_FLOW_KEYS)
	// FlowPorts is how many ports TCP and UDP have together.
	FlowPorts = int(flowWeirFlowLimitWEIR_PORTS)
	// FlowNodes and FlowTrees are how much a classifier may have, and FlowWords how
	// many features; the place of a node's feature is below that, or FlowLeaf.
	FlowNodes = int(flowWeirFlowLimitWEIR_MAX_NODES)
	FlowTrees = int(flowWeirFlowLimitWEIR_MAX_TREES)
	FlowWords = int(flowWeirFlowLimitWEIR_WORDS)
	FlowLeaf  = 0xff
)

// Flows are the flows of containers whose traffic class is ClassAuto, in the kernel: a
// table for each container, and the classifier that gives verdicts (bpf/flow.h). They
// belong to the programs at the taps and uplinks, which go on with them when the agent
// is dead; it finds them again by those. All uplinks and taps of an agent share one.
//
// Not for use by several goroutines at once, but for reading.
type Flows struct {
	spec *ebpf.CollectionSpec
	// specs are those of the maps, by name.
	specs map[string]*ebpf.MapSpec

	tables, configs, counts, trees, clock, senders *ebpf.Map
	// treesID tells programs that use these maps from those that use others.
	treesID ebpf.MapID
	keys    [flowKeys]uint64
	// tags identify this version of the programs, by name.
	tags map[string]string
}

// OpenFlows opens the flows that the classifier at one of these devices uses, or makes
// new ones. Errors: no memory for the maps.
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

// adopt takes the maps of the classifier at a device; false where it has none, or
// those of another version.
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

// shared are the maps by name.
func (f *Flows) shared() map[string]*ebpf.Map {
	shared := map[string]*ebpf.Map{}
	for name, m := range f.places() {
		shared[name] = *m
	}
	return shared
}

// FlowNode is a node of a tree as the programs walk it (struct weir_node).
type FlowNode struct {
	// Place is that of the feature's word: its code, or the code - 16 from 32 on;
	// FlowLeaf for a leaf.
	Place, Type, Level              uint8
	_                               uint8
	Threshold                       uint32
	Left, Right                     uint16
	TypeConfidence, LevelConfidence uint16
}

// FlowClassifier is what verdicts are given by.
type FlowClassifier struct {
	Nodes []FlowNode
	// Roots are the first nodes of each stage's trees.
	Roots         [2][]uint16
	MinConfidence uint16
	// Ports is what each port stands for: TCP's first, then UDP's.
	Ports []uint8
}

// classifierHead is what comes before the nodes in struct weir_classifier.
type classifierHead struct {
	Roots                 [2][FlowTrees]uint16
	Trees                 [2]uint32
	MinConfidence, Unused uint32
}

// SetClassifier puts a classifier in place of the one before, all at once. Flows keep
// the verdicts they have; what is asked from now on is asked of the new one. Errors:
// one that has more than there is room for; no memory.
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

// OpenTable gives a number a table for at least so many flows, to a power of two, in
// place of one that it has. Errors: no memory.
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

// TableFlows is how many flows a number's table holds, 0 if it has none. Those that
// never had one are told by their configuration: at every look-up in a map of maps
// Linux 6.1 waits for a grace period (kernel/bpf/syscall.c, maybe_wait_bpf_programs),
// which for all numbers would be minutes.
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

// configure changes what the programs are told about a number's flows.
func (f *Flows) configure(number uint16, set func(*flowWeirFlowConfig)) error {
	var have flowWeirFlowConfig
	if err := f.configs.Lookup(uint32(number), &have); err != nil {
		return fmt.Errorf("read how the flows of number %d are looked at: %w", number, err)
	}
	want := have
	set(&want)
	if want == have {
		return nil
	}
	if err := f.configs.Update(uint32(number), want, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("set how the flows of number %d are looked at: %w", number, err)
	}
	return nil
}

// SetTrustDSCP says whether the DSCP of a number's packets, as the container makes
// them, is their class (bpf/dscp.h): packets whose DSCP says none have that of their
// flow. It holds for a number that has a table, before or after that is opened, and
// ends with CloseTable.
func (f *Flows) SetTrustDSCP(number uint16, trust bool) error {
	return f.configure(number, func(c *flowWeirFlowConfig) { c.TrustDscp = flag(trust) })
}

func flag(set bool) uint32 {
	if set {
		return 1
	}
	return 0
}

// CloseTable takes a number's table away, with its flows.
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

// FlowCounts is what happened in a number's table.
type FlowCounts struct {
	// Created flows, of which Evicted took the place of the longest silent.
	Created, Evicted uint64
	// Lost packets began a flow and found no place; Unknown are of no flow. Refused are
	// packets of others that would have begun one in place of the container's own.
	Lost, Unknown, Refused uint64
}

// Counts reads what happened in a number's table since it was opened.
func (f *Flows) Counts(number uint16) (FlowCounts, error) {
	var c flowWeirFlowCounts
	if err := f.counts.Lookup(uint32(number), &c); err != nil {
		return FlowCounts{}, fmt.Errorf("read the flow counts of number %d: %w", number, err)
	}
	return FlowCounts{Created: c.Created, Evicted: c.Evicted, Lost: c.Lost, Unknown: c.Unknown, Refused: c.Refused}, nil
}

// Close closes the maps. The programs go on with them.
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
