package v1

import "time"

// History is a container's activity of the last three minutes, or since the start of the
// agent or the container if that is more recent.
type History struct {
	ID     string         `json:"id"`
	Name   string         `json:"name"`
	Shares []HistoryShare `json:"shares"`
}

// HistoryShare is the history at one uplink, oldest sample first.
type HistoryShare struct {
	Uplink  string          `json:"uplink"`
	Samples []HistorySample `json:"samples"`
}

// HistorySample is the sample of one second. Rates are in bits per second, rounded to seven
// digits.
type HistorySample struct {
	At           time.Time `json:"at"`
	EntitledBPS  uint64    `json:"entitled_bps"`
	AllocatedBPS uint64    `json:"allocated_bps"`
	RateBPS      uint64    `json:"rate_bps"`
	// WantsMore says that it had more to send than it got; otherwise WantedBPS is its
	// demand.
	WantsMore    bool    `json:"wants_more"`
	WantedBPS    uint64  `json:"wanted_bps"`
	BacklogBytes uint64  `json:"backlog_bytes"`
	DelayP50MS   float64 `json:"delay_p50_ms"`
	DelayP99MS   float64 `json:"delay_p99_ms"`
	// DroppedPackets and MarkedPackets are counted since the previous sample.
	DroppedPackets uint64 `json:"dropped_packets"`
	MarkedPackets  uint64 `json:"marked_packets"`
}
