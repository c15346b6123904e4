package core

import (
	"sync"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Memory reuse. A new flow needs two entries of about twenty parts each. Each entry is
// allocated in one piece and reused after its message was written; ended flows are reused,
// too. This reduces garbage collection while packets wait.

// entryParts is the memory of one add-entry message for an unrouted flow.
type entryParts struct {
	message      openflow.FlowMod
	fields       [maxMatchFields]openflow.OXM
	values       [maxMatchBytes]byte
	instructions [1]openflow.Instruction
	apply        openflow.InstructionActions
	actions      [2]openflow.Action
	queue        openflow.ActionSetQueue
	output       openflow.ActionOutput
}

// written is the pool of entryParts whose messages were written.
var written = sync.Pool{New: func() any {
	p := &entryParts{}
	p.actions = [2]openflow.Action{&p.queue, &p.output}
	p.apply = openflow.InstructionActions{Type: openflow.OFPIT_APPLY_ACTIONS, Actions: p.actions[:]}
	p.instructions[0] = &p.apply
	p.fields[0].Value = p.values[:0]
	p.message = openflow.FlowMod{Match: openflow.Match{Fields: p.fields[:0]}, Instructions: p.instructions[:]}
	return &p.message
}}

// Written returns a Command's message to the pool once it has been written.
func Written(m openflow.Message) {
	e, ok := m.(*openflow.FlowMod)
	if ok && e.Command == openflow.OFPFC_ADD && e.Cookie&cookieKindMask == cookieFlow && len(e.Instructions) == 1 && len(actionsOf(e)) == 2 {
		written.Put(e)
	}
}

// actionsOf returns the actions of a flow's entry.
func actionsOf(m *openflow.FlowMod) []openflow.Action {
	return m.Instructions[0].(*openflow.InstructionActions).Actions
}

// add returns the message that adds a flow's entry for one hop.
func (f *Flow) add(hop topology.Hop, queue openflow.Queue) *openflow.FlowMod {
	if f.isRouted() {
		match, actions := f.entry(hop, queue)
		return flowMod(cookieFlow|f.ID, openflow.OFPFC_ADD, priorityFlow, match, actions...)
	}
	m := written.Get().(*openflow.FlowMod)
	fields, instructions := m.Match.Fields[:0], m.Instructions
	*m = openflow.FlowMod{
		Cookie: cookieFlow | f.ID, Command: openflow.OFPFC_ADD, Priority: priorityFlow,
		Match:    f.Key.matchIn(fields, fields[:1][0].Value[:0], hop.In),
		BufferID: openflow.OFP_NO_BUFFER, OutPort: openflow.OFPP_ANY, OutGroup: openflow.OFPG_ANY,
		Instructions: instructions,
	}
	actions := actionsOf(m)
	actions[0].(*openflow.ActionSetQueue).QueueID = queue
	*actions[1].(*openflow.ActionOutput) = openflow.ActionOutput{Port: openflow.Port(outOf(hop))}
	return m
}

// packetThrough returns the packet-out that sends a packet to a queue of a port, allocated in one piece.
func packetThrough(in uint32, data []byte, queue openflow.Queue, out uint32) *openflow.PacketOut {
	p := &struct {
		message openflow.PacketOut
		actions [2]openflow.Action
		queue   openflow.ActionSetQueue
		output  openflow.ActionOutput
	}{queue: openflow.ActionSetQueue{QueueID: queue}, output: openflow.ActionOutput{Port: openflow.Port(out)}}
	p.actions = [2]openflow.Action{&p.queue, &p.output}
	p.message = openflow.PacketOut{BufferID: openflow.OFP_NO_BUFFER, InPort: openflow.Port(in), Actions: p.actions[:], Data: data}
	return &p.message
}

// maxSpareFlows limits how many ended flows are kept for reuse.
const maxSpareFlows = 1 << 10

// newFlow returns a reused or newly allocated flow.
func (l *flows) newFlow() *Flow {
	if n := len(l.spare); n > 0 {
		f := l.spare[n-1]
		l.spare[n-1], l.spare = nil, l.spare[:n-1]
		return f
	}
	return &Flow{}
}

// reuse keeps an ended flow, which nothing may reference any more, for newFlow.
func (l *flows) reuse(f *Flow) {
	if len(l.spare) < maxSpareFlows {
		l.spare = append(l.spare, f)
	}
}
