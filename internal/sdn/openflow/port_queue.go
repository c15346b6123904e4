package openflow

import "fmt"

// Statistics of ports, and queues.

// PortDescRequest asks for a PortDescReply. Section 7.3.5.7.
type PortDescRequest struct{}

func (*PortDescRequest) code(*coder) {}

// PortStatsRequest asks for a PortStatsReply. Section 7.3.5.6.
type PortStatsRequest struct {
	PortNo Port // OFPP_ANY is all
}

func (p *PortStatsRequest) code(c *coder) {
	u32(c, "port_no", &p.PortNo)
	c.pad(4)
}

// PortStats is one port. Section 7.3.5.6.
type PortStats struct {
	PortNo       Port
	RxPackets    uint64
	TxPackets    uint64
	RxBytes      uint64
	TxBytes      uint64
	RxDropped    uint64
	TxDropped    uint64
	RxErrors     uint64
	TxErrors     uint64
	RxFrameErr   uint64
	RxOverErr    uint64
	RxCRCErr     uint64
	Collisions   uint64
	DurationSec  uint32
	DurationNsec uint32
}

func (p *PortStats) code(c *coder) {
	u32(c, "port_no", &p.PortNo)
	c.pad(4)
	u64(c, "rx_packets", &p.RxPackets)
	u64(c, "tx_packets", &p.TxPackets)
	u64(c, "rx_bytes", &p.RxBytes)
	u64(c, "tx_bytes", &p.TxBytes)
	u64(c, "rx_dropped", &p.RxDropped)
	u64(c, "tx_dropped", &p.TxDropped)
	u64(c, "rx_errors", &p.RxErrors)
	u64(c, "tx_errors", &p.TxErrors)
	u64(c, "rx_frame_err", &p.RxFrameErr)
	u64(c, "rx_over_err", &p.RxOverErr)
	u64(c, "rx_crc_err", &p.RxCRCErr)
	u64(c, "collisions", &p.Collisions)
	u32(c, "duration_sec", &p.DurationSec)
	u32(c, "duration_nsec", &p.DurationNsec)
}

// QueueStatsRequest asks for a QueueStatsReply. Section 7.3.5.8.
type QueueStatsRequest struct {
	PortNo  Port  // OFPP_ANY is all
	QueueID Queue // OFPQ_ALL is all
}

func (q *QueueStatsRequest) code(c *coder) {
	u32(c, "port_no", &q.PortNo)
	u32(c, "queue_id", &q.QueueID)
}

// QueueStats is one queue of a port. Section 7.3.5.8.
type QueueStats struct {
	PortNo       Port
	QueueID      Queue
	TxBytes      uint64
	TxPackets    uint64
	TxErrors     uint64 // dropped for want of room
	DurationSec  uint32
	DurationNsec uint32
}

func (q *QueueStats) code(c *coder) {
	u32(c, "port_no", &q.PortNo)
	u32(c, "queue_id", &q.QueueID)
	u64(c, "tx_bytes", &q.TxBytes)
	u64(c, "tx_packets", &q.TxPackets)
	u64(c, "tx_errors", &q.TxErrors)
	u32(c, "duration_sec", &q.DurationSec)
	u32(c, "duration_nsec", &q.DurationNsec)
}

// QueueGetConfigRequest asks for a QueueGetConfigReply. Section 7.3.6.
type QueueGetConfigRequest struct {
	Header
	Port Port // OFPP_ANY is all
}

func (m *QueueGetConfigRequest) code(c *coder) {
	u32(c, "port", &m.Port)
	c.pad(4)
}

// QueueGetConfigReply tells which queues a port has. Section 7.3.6.
type QueueGetConfigReply struct {
	Header
	Port   Port
	Queues []PacketQueue
}

func (m *QueueGetConfigReply) code(c *coder) {
	u32(c, "port", &m.Port)
	c.pad(4)
	structs(c, "queues", &m.Queues)
}

// PacketQueue is one queue. Section 7.2.2.
type PacketQueue struct {
	QueueID    Queue
	Port       Port
	Properties []QueueProp
}

func (q *PacketQueue) code(c *coder) {
	s := c.open("ofp_packet_queue")
	u32(c, "queue_id", &q.QueueID)
	u32(c, "port", &q.Port)
	c.length(&s)
	c.pad(6)
	structs(c, "properties", &q.Properties)
	c.close(s)
}

// QueueProp is a property of a queue: ofp_queue_prop_header with what follows.
// Section 7.2.2.
type QueueProp struct {
	Property     QueueProperty
	Rate         uint16 // of OFPQT_MIN_RATE and OFPQT_MAX_RATE, in 1/10 % of the link; above 1000: none
	Experimenter uint32 // of OFPQT_EXPERIMENTER
	Data         []byte // of OFPQT_EXPERIMENTER
}

func (p *QueueProp) code(c *coder) {
	s := c.open("ofp_queue_prop_header")
	u16(c, "property", &p.Property)
	c.length(&s)
	c.pad(4)
	switch p.Property {
	case OFPQT_MIN_RATE, OFPQT_MAX_RATE:
		u16(c, "rate", &p.Rate)
		c.pad(6)
	case OFPQT_EXPERIMENTER:
		u32(c, "experimenter", &p.Experimenter)
		c.pad(4)
		c.data("data", &p.Data)
	default:
		c.fail(fmt.Errorf("property %v: %w", p.Property, ErrUnsupported))
	}
	c.close(s)
}
