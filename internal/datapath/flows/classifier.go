// Package flows is about the flows of containers that ask for classes: which
// classifier judges them, how many of each container the kernel remembers, and what
// people are shown of them. The kernel's side, tables and programs, is package
// identity's; what a classifier is, package appid's.
//
// Limits: the kernel measures no times between packets and nothing of the responder's
// handshake, so a classifier that asks for these is refused (Classifier).
package flows

import (
	"fmt"

	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/appid/flow"
	"github.com/weir-project/weir/internal/identity"
)

// place is where the kernel keeps the word of a feature (struct weir_node in
// bpf/intf.h); false for one that it does not measure.
func place(code uint8) (uint8, bool) {
	const firstLate, gap = 32, 16
	switch {
	case code <= 14: // of the first packet: all
		return code, true
	case code >= 32 && code <= 37, // seq_len1 to 6
		code >= 48 && code <= 50, code >= 52 && code <= 54, // c2s_len, s2c_len: as far as they are among the six
		code >= 56 && code <= 60: // first_side, packets, largest, smallest, turns
		return code - firstLate + gap, true
	}
	return 0, false
}

// Classifier turns a classifier into what the kernel walks, with the table of ports
// that it was trained with. Errors: a tree that is corrupt or too deep, or asks for
// what the kernel does not measure.
func Classifier(model *appid.Model) (identity.FlowClassifier, error) {
	compact, err := model.Compact()
	if err != nil {
		return identity.FlowClassifier{}, err
	}
	return FromCompact(compact)
}

// FromCompact is Classifier of a classifier's binary form.
func FromCompact(c *appid.Compact) (identity.FlowClassifier, error) {
	if err := c.Check(); err != nil {
		return identity.FlowClassifier{}, err
	}
	names := map[uint8]string{}
	for _, f := range flow.Features(appid.Types) {
		names[f.Code] = f.Name
	}
	out := identity.FlowClassifier{
		Nodes: make([]identity.FlowNode, len(c.Nodes)), Roots: c.Roots, MinConfidence: c.MinConfidence,
		Ports: flow.KnownPorts(appid.Types)[:],
	}
	for i, n := range c.Nodes {
		at := uint8(identity.FlowLeaf)
		if n.Feature != appid.LeafFeature {
			var ok bool
			if at, ok = place(n.Feature); !ok {
				return out, fmt.Errorf("load classifier: it asks for %s, which the kernel does not measure: train without that feature (weir classify train --features)", names[n.Feature])
			}
		}
		out.Nodes[i] = identity.FlowNode{
			Place: at, Type: n.Type, Level: n.Level, Threshold: n.Threshold, Left: n.Left, Right: n.Right,
			TypeConfidence: n.TypeConfidence, LevelConfidence: n.LevelConfidence,
		}
	}
	return out, nil
}
