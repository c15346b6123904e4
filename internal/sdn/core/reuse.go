package core

import (
	"sync"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Every new flow takes two entries, each of some twenty parts. These are one piece of
// memory, which is used again once the message is written: what is no garbage is not
// collected while packets wait.

// entryParts are the parts of a message that adds an entry of a flow within its network.
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

// written are messages with entryParts that nobody needs any more.
var written = sync.Pool{New: func() any {
	p := &entryParts{}
	p.actions = [2]openflow.Action{&p.queue, &p.output}
	p.apply = openflow.InstructionActions{Type: openflow.OFPIT_APPLY_ACTIONS, Actions: p.actions[:]}
	p.instructions[0] = &p.apply
	p.fields[0].Value = p.values[:0]
	p.message = openflow.FlowMod{Match: openflow.Match{Fields: p.fields[:0]}, Instructions: p.instructions[:]}
	return &p.message
}}

// Written says that a message of a Command is not needed any more.
func Written(m openflow.Message) {
	e, ok := m.(*openflow.FlowMod)
	if ok && e.Command == openflow.OFPFC_ADD && e.Cookie&cookieKindMask == cookieFlow && len(e.Instructions) == 1 && len(actionsOf(e)) == 2 {
		written.Put(e)
	}
}

// actionsOf are the actions of an entry of a flow.
func actionsOf(m *openflow.FlowMod) []openflow.Action {
	return m.Instructions[0].(*openflow.InstructionActions).Actions
}

// add is the message that makes a flow's entry.
func (f *Flow) add(hop topology.Hop, queue openflow.Queue) *openflow.FlowMod {
	if f.routed() {
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
