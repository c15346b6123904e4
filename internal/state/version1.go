package state

// fileV1 is the file as version 1 wrote it: it kept the whole policy of a
// container of which anything was set, and a tap's fields had their names in Go.
type fileV1 struct {
	Version    int           `json:"version"`
	Uplinks    []*Uplink     `json:"uplinks"`
	Containers []containerV1 `json:"containers"`
}

type containerV1 struct {
	Container
	Override *policyV1      `json:"override"`
	Attached []attachmentV1 `json:"attached"`
}

type policyV1 struct {
	Weight    uint32  `json:"weight"`
	MinBPS    uint64  `json:"min_bps"`
	MaxBPS    uint64  `json:"max_bps"`
	Priority  uint32  `json:"priority"`
	LatencyMS float64 `json:"latency_ms"`
	Class     string  `json:"class"`
}

type attachmentV1 struct {
	Interface   string `json:"interface"`
	Tap         tapV1  `json:"tap"`
	GSOMaxBytes uint32 `json:"gso_max_bytes"`
}

type tapV1 struct {
	NetNSPath        string
	Ifindex          int
	Egress, Priority bool
}

// upgrade makes of it what this version writes.
func (f fileV1) upgrade() File {
	upgraded := File{Version: Version, Uplinks: f.Uplinks}
	for _, old := range f.Containers {
		c := old.Container
		if p := old.Override; p != nil {
			c.Set = &Set{
				Weight: &p.Weight, MinBPS: &p.MinBPS, MaxBPS: &p.MaxBPS,
				Priority: &p.Priority, LatencyMS: &p.LatencyMS, Class: &p.Class,
			}
		}
		for _, at := range old.Attached {
			c.Attached = append(c.Attached, Attachment{
				Interface: at.Interface, Tap: Tap(at.Tap), GSOMaxBytes: at.GSOMaxBytes,
			})
		}
		upgraded.Containers = append(upgraded.Containers, c)
	}
	return upgraded
}
