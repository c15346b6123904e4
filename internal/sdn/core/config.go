package core

import (
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/internal/sdn/qos"
	"github.com/weir-project/weir/internal/sdn/topology"
)

// Config are the operator's settings.
type Config struct {
	Queues QueueMap
	// TypeQueues maps application types (index of apps.Types) to queues of their own.
	TypeQueues map[int]TypeQueue
	// IdleTimeoutSeconds is the idle timeout of flow entries.
	IdleTimeoutSeconds uint16
	// FailSafe installs entries that forward to known stations as best effort and copy
	// packets to the controller. Without it a packet of an unknown flow waits for the
	// controller, as in the paper, and is lost if there is none.
	FailSafe bool
	// MaxFlows limits the flows with entries of their own; further flows are best effort.
	MaxFlows int
	// PacketInsPerSecond is the rate of the switch's packet-in meter; 0 disables the meter.
	PacketInsPerSecond uint32
	LLDPInterval       time.Duration
	StatsInterval      time.Duration
	// SecondLook enables the correction of classes by flow statistics.
	SecondLook bool
	// TakeoverAfter is how long the master may fail to renew its role before a standby
	// controller takes over; 0 means a single controller.
	TakeoverAfter time.Duration
	// Claim distinguishes controllers in an election; see the function Claim.
	Claim uint32
	// Trust are the ports whose packets are queued by their marks; nil disables that.
	Trust *Trust
	// QueueStates returns the queues of ports; nil if this controller makes none.
	QueueStates func() map[topology.Port]qos.PortState
	// Routes are the networks that the controller routes between; nil disables routing.
	Routes *Routes
	// LLDPKey authenticates LLDP frames. It must be random.
	LLDPKey [32]byte
	// FirstFlowID is the number of the first flow. It is random, so that numbers do not
	// collide with flows of another controller or an earlier start.
	FirstFlowID uint64
}

// Description is what a switch says of itself when it connects.
type Description struct {
	Features *openflow.FeaturesReply
	Ports    []openflow.PortDesc
	// Meters is nil if the switch has none, or was not asked.
	Meters *openflow.MeterFeatures
	// Tables is empty if the switch does not describe them, or was not asked.
	Tables []openflow.TableFeatures
}

// Command is a message for one switch.
type Command struct {
	Switch  topology.DPID
	Message openflow.Message
}

// Counters count events since the start.
type Counters struct {
	PacketIns, Installed, Reinstalled, Rerouted, Reclassified, Evicted, TableFull uint64
	Unknown, Probation, StationsRefused, Errors, Blocked, FloodsLimited           uint64
	RolesClaimed, RolesLost                                                       uint64
	LLDP                                                                          LLDPCounters
	Routed                                                                        RoutedCounters
}

// LLDPCounters count rejected LLDP frames by reason.
type LLDPCounters struct{ Foreign, Forged, Stale, OnStationPort uint64 }

// RoutedCounters count packets that could not be routed, by reason.
type RoutedCounters struct{ TTL, Nowhere, Unanswered uint64 }
