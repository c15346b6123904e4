package v1

import "time"

// RoomSilence is how long a [Room] counts. weir-edge says it again sooner.
const RoomSilence = 10 * time.Second

// Room is the node of weir-edge, other than this one, that can promise the largest minimum.
type Room struct {
	// Node is its name; none if no other node can promise any.
	Node string `json:"node,omitempty"`
	// FreeBPS is what it can still promise.
	FreeBPS uint64 `json:"free_bps,omitempty"`
}
