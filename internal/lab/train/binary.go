package train

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/weir-project/weir/internal/apps"
)

// compactMagic starts the binary form. After it come the counts of nodes and trees and the
// minimum confidence.
var compactMagic = [4]byte{'W', 'T', 'R', '1'}

type compactHeader struct {
	Magic         [4]byte
	Nodes         uint16
	Trees         [2]uint8
	MinConfidence uint16
	_             uint16
}

// Binary returns header, roots and nodes of a classifier in the binary form.
func Binary(c *apps.Compact) ([]byte, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, v := range []any{
		compactHeader{
			Magic: compactMagic, Nodes: uint16(len(c.Nodes)), MinConfidence: c.MinConfidence,
			Trees: [2]uint8{uint8(len(c.Roots[0])), uint8(len(c.Roots[1]))},
		},
		c.Roots[0], c.Roots[1], c.Nodes,
	} {
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			return nil, fmt.Errorf("write tree: %w", err)
		}
	}
	return b.Bytes(), nil
}
