package core

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// BenchmarkNewFlow is what a new flow costs from its packet-in's bytes to those of
// what its switch is told, and what it costs when it ends, with 10,000 others on 100
// switches.
func BenchmarkNewFlow(b *testing.B) {
	const switches, kept = 100, 20000
	model, err := apps.Shipped()
	if err != nil {
		b.Fatal(err)
	}
	classifier, err := NewClassifier(model)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Unix(1e9, 0)
	c := New(Config{Queues: DefaultQueues(), IdleTimeoutSeconds: 30, MaxFlows: 1e7, LLDPInterval: time.Second, StatsInterval: 5 * time.Second})
	for d := range topology.DPID(switches) {
		c.Connected(now, Description{Features: &openflow.FeaturesReply{DatapathID: uint64(d + 1)}, Ports: []openflow.PortDesc{{PortNo: 1}, {PortNo: 2}}})
	}
	now = now.Add(3 * time.Second)
	take := func(raw []byte, d topology.DPID) []Command {
		m, err := openflow.ParseShared(raw)
		if err != nil {
			b.Fatal(err)
		}
		in := m.(*openflow.PacketIn)
		f, _ := ReadFrame(in.Data)
		return c.PacketIn(now, d, in, &f, classifier.First(&f))
	}
	packetIn := func(d topology.DPID, n int) []byte {
		left, right := simHostAt(at(d, 1), byte(d)), simHostAt(at(d, 2), byte(d+100))
		frame := left.frame(right, flow.TCP, uint16(n), uint16(n>>16), 0, 2)
		raw, err := (&openflow.PacketIn{BufferID: openflow.OFP_NO_BUFFER, Data: frame, Match: openflow.Match{Fields: []openflow.OXM{inPort(1)}}}).MarshalBinary()
		if err != nil {
			b.Fatal(err)
		}
		return raw
	}
	for d := range topology.DPID(switches) {
		opened := simHostAt(at(d+1, 2), byte(d+101)).broadcast()
		f, _ := ReadFrame(opened)
		c.PacketIn(now, d+1, &openflow.PacketIn{Data: opened, Match: openflow.Match{Fields: []openflow.OXM{inPort(2)}}}, &f, Verdict{})
	}
	var ends [][2]uint64 // switch and number, the oldest first
	var buffer []byte
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		d := topology.DPID(n%switches + 1)
		raw := packetIn(d, n)
		n++
		buffer = buffer[:0]
		for _, command := range take(raw, d) {
			if m, ok := command.Message.(*openflow.FlowMod); ok && m.Command == openflow.OFPFC_ADD && m.Cookie&cookieKindMask == cookieFlow {
				ends = append(ends, [2]uint64{uint64(d), m.Cookie})
			}
			if buffer, err = openflow.Append(buffer, command.Message); err != nil {
				b.Fatal(err)
			}
			Written(command.Message)
		}
		for len(ends) > kept {
			c.FlowRemoved(now, topology.DPID(ends[0][0]), &openflow.FlowRemoved{Cookie: ends[0][1]})
			ends = ends[1:]
		}
	}
}
