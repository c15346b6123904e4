// Package spec reads and writes the specification of a service: what it is and
// what its users need.
//
// # Notation
//
// The notation is that of PiCasso (Lertsinsrubtavee et al., "PiCasso: A
// Lightweight Edge Computing Platform", section III.B), and beside its two keys
// those that a container needs to run:
//
//	{"par": {"serviceName": "S1", "imageName": "armhfbuild/nginx", "imageSize": "368",
//	         "maxUsers": "50", "startUpTime": "5"},
//	 "QoS": {"responseTime": "5", "availability": "99.99", "numUsers": "100"},
//	 "ports": [{"host": 80, "container": 8083}],
//	 "labels": {"weir.min": "5mbit"},
//	 "limits": {"memory": "64m", "cpus": 0.5},
//	 "algorithm": "hybrid"}
//
// Numbers may be written as strings, as in the paper. The paper's deployment
// descriptor, {"imageName", "port_host", "port_container"}, is read as well. Its
// two examples contradict each other on which port is which; port_host is the
// host's, as the name says and its monitoring object has it.
//
// # Limits
//
// Reading is strict: a refusal is better than a service that runs without half of
// what it needs. What can be judged from one specification alone is judged here; what
// depends on nodes is the engine's.
package spec

import (
	"cmp"
	"math"

	"github.com/weir-project/weir/internal/share/policy"
)

// The algorithms that every engine has. Any other name is a rule of the operator's.
const (
	AlgorithmLocal  = "local"
	AlgorithmRemote = "remote"
	AlgorithmHybrid = "hybrid"
	AlgorithmRule   = "rule" // the specification's own, in Spec.Rule
)

// Spec is what a service is and what its users need. Zero values are what the
// specification does not say: the engine then goes by what it measures.
type Spec struct {
	Name  string // par.serviceName
	Image string // par.imageName
	// ImageBytes is what has to be transferred to a node that lacks the image, as
	// par.imageSize says, in megabytes of 10^6 bytes there.
	ImageBytes uint64
	// MaxUsers is how many users at once one instance can serve.
	MaxUsers int
	// StartUpSeconds is from the start of an instance to its first answer.
	StartUpSeconds float64

	// ResponseSeconds is what users may have to wait for an answer.
	ResponseSeconds float64
	// AvailabilityPercent is the part of the time that the service has to be
	// there, below 100.
	AvailabilityPercent float64
	// NumUsers is how many users at once the service has to have room for, always.
	NumUsers int
	// ReplicationSeconds is how long the service can wait for another instance:
	// QoS.replicationTime. Where it is not given, [Spec.WaitSeconds] has the paper's.
	ReplicationSeconds float64

	Ports  []Port
	Labels map[string]string
	Limits Limits
	// Algorithm chooses where to replicate: one of the algorithms above, or the
	// name of a rule of the operator's. It is never empty.
	Algorithm string
	// Rule is a CEL expression, for the algorithm [AlgorithmRule].
	Rule string

	// Container is what a Compose file says of instances; nil if the specification is none.
	Container *Container
}

// Port is a port of the service. Users come to Host, on any node; the instance
// listens at Container.
type Port struct {
	Host      uint16 `json:"host"`
	Container uint16 `json:"container"`
}

// Limits are the most that an instance may take, and how many there may be; 0 for
// no limit.
type Limits struct {
	MemoryBytes uint64
	CPUs        float64
	Instances   int
}

// MinBPS returns the rate that all users get together (the label weir.min), in bits
// per second; 0 for none.
func (s *Spec) MinBPS() uint64 {
	p, _ := policy.Parse(s.Labels)
	return p.MinBPS
}

// InMinBPS returns the rate that all users may send together (the label weir.in.min), in bits per
// second; 0 for none.
func (s *Spec) InMinBPS() uint64 { return policy.Resolve(policy.Inputs{Labels: s.Labels}).In.MinBPS }

// OnlyPort returns the port at which users of a service with one port connect; 0 for others. By it
// switches tell the service's packets from others of the node.
func (s *Spec) OnlyPort() uint16 {
	if len(s.Ports) != 1 {
		return 0
	}
	return s.Ports[0].Host
}

// Priority returns the order in which services get what nodes have left, the highest first (the label
// weir.priority).
func (s *Spec) Priority() uint32 {
	p, _ := policy.Parse(s.Labels)
	return p.Priority
}

// usualInstances is the number of instances that a service may have without limits.instances.
const usualInstances = 16

// MostInstances returns how many instances there may be: limits.instances or, without it,
// usualInstances and at least twice what QoS.numUsers takes. It is 1 for exclusive ones.
func (s *Spec) MostInstances() int {
	if s.IsExclusive() {
		return 1
	}
	return cmp.Or(s.Limits.Instances, max(usualInstances, 2*s.LeastInstances()))
}

// CanSleep reports whether the service may have no instance while it has no users: it should, its users
// come to a proxy, and there is nothing else that it has to be there for.
func (s *Spec) CanSleep() bool {
	return s.Container != nil && s.Container.Sleeps && s.Container.Instances <= 1 && len(s.Ports) > 0 &&
		s.NumUsers == 0 && s.AvailabilityPercent == 0 && s.MinBPS() == 0 && s.InMinBPS() == 0
}

// LeastInstances returns how many instances there have to be for QoS.numUsers and for what a Compose
// file says.
func (s *Spec) LeastInstances() int {
	if s.CanSleep() {
		return 0
	}
	least := s.InstancesFor(float64(s.NumUsers))
	if s.Container != nil {
		least = max(least, s.Container.Instances)
	}
	return least
}

// InstancesFor returns how many instances have room for that many users; 1 where
// nothing is known of how many users one can serve.
func (s *Spec) InstancesFor(users float64) int {
	if s.MaxUsers <= 0 || users <= float64(s.MaxUsers) {
		return 1
	}
	return int(math.Ceil(users / float64(s.MaxUsers)))
}

// WaitSeconds returns how long the service can wait for another instance. The paper
// compares the cost of replication with the "delay requirements" (section V), which
// is the response time, unless the specification says more. 0: nothing is said.
func (s *Spec) WaitSeconds() float64 {
	if s.ReplicationSeconds > 0 {
		return s.ReplicationSeconds
	}
	return s.ResponseSeconds
}
