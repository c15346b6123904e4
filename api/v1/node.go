package v1

import "time"

// Node is the monitoring object of PiCasso (Lertsinsrubtavee et al., "PiCasso: A
// Lightweight Edge Computing Platform", section III.A), with its keys and, as
// there, all values as strings; and beside it Measured, the same and more as
// numbers.
type Node struct {
	SoftResources SoftResources   `json:"softResources"`
	HardResources HardResources   `json:"hardResources"`
	ResourceUsage ResourceUsage   `json:"resourceUsage"`
	PiID          string          `json:"PiID"`
	PiIP          string          `json:"PiIP"`
	Containers    []NodeContainer `json:"containers"`
	Measured      Measured        `json:"measured"`
}

// SoftResources names the operating system of a node.
type SoftResources struct {
	OS string `json:"OS"`
}

// HardResources is the hardware of a node, in words: "1 GB".
type HardResources struct {
	Mem  string `json:"mem"`
	Disk string `json:"disk"`
	CPU  string `json:"cpu"`
}

// ResourceUsage is how busy a node is: the load of the last minute, and the parts
// of the memory and of all processors in use, in percent.
type ResourceUsage struct {
	CPULoad  string `json:"cpuLoad"`
	MemUsage string `json:"memUsage"`
	CPUUsage string `json:"cpuUsage"`
}

// NodeContainer is a container of a node. MemUsage is in bytes, CPUUsage in nanoseconds of
// processor time since its start; both are empty if unavailable. PortHost and PortContainer
// are its first published port.
type NodeContainer struct {
	Status        string `json:"status"`
	PortHost      string `json:"port_host"`
	PortContainer string `json:"port_container"`
	MemUsage      string `json:"memUsage"`
	Name          string `json:"name"`
	CPUUsage      string `json:"cpuUsage"`
	Image         string `json:"image"`
	ID            string `json:"id"`
}

// Measured are the measurements of a node as numbers.
type Measured struct {
	At       time.Time `json:"at"`
	OS       string    `json:"os"`
	Hostname string    `json:"hostname"`
	CPUModel string    `json:"cpu_model"`
	CPUs     int       `json:"cpus"`
	// CPUUsedPercent is the use of all processors together since the last request, or since
	// the node's start.
	CPUUsedPercent  float64 `json:"cpu_used_percent"`
	Load1           float64 `json:"load_1"`
	MemoryBytes     uint64  `json:"memory_bytes"`
	MemoryUsedBytes uint64  `json:"memory_used_bytes"`
	// DiskBytes and DiskFreeBytes describe the file system at /.
	DiskBytes     uint64              `json:"disk_bytes"`
	DiskFreeBytes uint64              `json:"disk_free_bytes"`
	Containers    []MeasuredContainer `json:"containers"`
	Uplinks       []MeasuredUplink    `json:"uplinks"`
	// Responses are of the services of weir-edge whose users connect to this node, and of the
	// instances that serve them. ResponsesReason is why they cannot be measured; empty if they can.
	Responses       []ServiceResponse `json:"responses"`
	ResponsesReason string            `json:"responses_reason,omitempty"`
}

// ServiceResponse is how long users of a service wait, from the request to the last byte that they
// get: of the last half minute, or of the last requests, a minute ago at most.
type ServiceResponse struct {
	Service string `json:"service"`
	// Instance is the instance's name in its engine; empty: all of the service.
	Instance string `json:"instance"`
	// Requests is the number of requests that were measured: all, up to 200 a second.
	Requests    int     `json:"requests"`
	MeanSeconds float64 `json:"mean_seconds"`
	P95Seconds  float64 `json:"p95_seconds"`
	// DeliverySeconds is the part of the mean after the instance's first byte, in which answers
	// waited for the network.
	DeliverySeconds float64 `json:"delivery_seconds"`
}

// ResponseSocket is the name of the abstract socket on which an agent takes the lines of proxies
// about requests.
const ResponseSocket = "weir-responses"

// LabelEdgeRole is the label with the role of a container of weir-edge, EdgeProxy that of proxies.
const (
	LabelEdgeRole = "weir-edge.role"
	EdgeProxy     = "proxy"
)

// MeasuredContainer are the measurements of a container as numbers. Unavailable values are
// absent.
type MeasuredContainer struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Runtime     string    `json:"runtime"`
	Image       string    `json:"image"`
	Ports       []Port    `json:"ports"`
	StartedAt   time.Time `json:"started_at,omitzero"`
	MemoryBytes *uint64   `json:"memory_bytes,omitempty"`
	// CPUSeconds is the processor time since the container's start.
	CPUSeconds *float64 `json:"cpu_seconds,omitempty"`
	// Connections is the number of TCP connections that others have opened to it and use, where the request asks for
	// it: data moved within five seconds, or waits for an answer, the program or the other end.
	Connections *int `json:"connections,omitempty"`
}

// Port is a published port of a container.
type Port struct {
	Container uint16 `json:"container"`
	Host      uint16 `json:"host"`
	Protocol  string `json:"protocol"`
}

// MeasuredUplink is the capacity of an uplink.
type MeasuredUplink struct {
	Name    string `json:"name"`
	RateBPS uint64 `json:"rate_bps"`
	SentBPS uint64 `json:"sent_bps"`
	// AdmittedBPS is the sum of admitted minimums, FreeBPS what further minimums can claim: nothing
	// while the uplink is not shared.
	AdmittedBPS uint64 `json:"admitted_bps"`
	FreeBPS     uint64 `json:"free_bps"`
	// In is its capacity for what it receives; absent unless that is shared.
	In *MeasuredIncoming `json:"in,omitempty"`
}

// MeasuredIncoming is the capacity of an uplink for what it receives.
type MeasuredIncoming struct {
	RateBPS     uint64 `json:"rate_bps"`
	ReceivedBPS uint64 `json:"received_bps"`
	// AdmittedBPS and FreeBPS are as of what is sent.
	AdmittedBPS uint64 `json:"admitted_bps"`
	FreeBPS     uint64 `json:"free_bps"`
}
