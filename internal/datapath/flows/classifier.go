// Package flows manages the flows of containers whose class is auto: the classifier that judges
// them, the size of each container's flow table, and the list of live flows. Package identity has
// the kernel's tables and programs, package apps the classifiers.
//
// Limits: the kernel measures no times between packets and nothing of the responder's handshake, so
// Classifier refuses a model that needs these.
package flows

import (
	"fmt"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/apps/flow"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// place returns where the kernel stores the value of a feature (struct weir_node in bpf/intf.h),
// and false for a feature that the kernel does not measure.
func place(code uint8) (uint8, bool) {
	const firstLate, gap = 32, 16
	switch {
	case code <= 14: // of the first packet: all
		return code, true
	case code >= 32 && code <= 37, // seq_len1 to 6
		code >= 48 && code <= 50, code >= 52 && code <= 54, // c2s_len, s2c_len: those within the first six packets
		code >= 56 && code <= 60: // first_side, packets, largest, smallest, turns
		return code - firstLate + gap, true
	}
	return 0, false
}

// Classifier converts a model, with the table of ports that it was trained with, to the form that
// the kernel walks. Errors: a tree that is corrupt, too deep, or uses features that the kernel does
// not measure.
func Classifier(model *apps.Model) (identity.FlowClassifier, error) {
	compact, err := model.Compact()
	if err != nil {
		return identity.FlowClassifier{}, err
	}
	return FromCompact(compact)
}

// FromCompact converts the binary form of a classifier, as Classifier does.
func FromCompact(c *apps.Compact) (identity.FlowClassifier, error) {
	if err := c.Check(); err != nil {
		return identity.FlowClassifier{}, err
	}
	names := map[uint8]string{}
	for _, f := range flow.Features(apps.Types) {
		names[f.Code] = f.Name
	}
	out := identity.FlowClassifier{
		Nodes: make([]identity.FlowNode, len(c.Nodes)), Roots: c.Roots, MinConfidence: c.MinConfidence,
		Ports: flow.KnownPorts(apps.Types)[:],
	}
	for i, n := range c.Nodes {
		at := uint8(identity.FlowLeaf)
		if n.Feature != apps.LeafFeature {
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
