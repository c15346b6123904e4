package engine

import (
	"errors"
	"fmt"
)

// Policy is how eager the engine is. It is the operator's, for all services.
type Policy struct {
	// UsersHighPercent of what instances have room for is a reason for another one;
	// if those that are left would have at most UsersLowPercent, one is stopped.
	UsersHighPercent float64 `json:"users_high_percent"`
	UsersLowPercent  float64 `json:"users_low_percent"`
	// ResponseHighPercent of the response time that is required is a reason for
	// another instance.
	ResponseHighPercent float64 `json:"response_high_percent"`
	// A container is exhausted that uses CPUHighPercent of the processors it may
	// use, a node whose processors or memory are used to these parts, or whose load
	// is LoadHigh for each processor.
	CPUHighPercent        float64 `json:"cpu_high_percent"`
	NodeCPUHighPercent    float64 `json:"node_cpu_high_percent"`
	NodeMemoryHighPercent float64 `json:"node_memory_high_percent"`
	LoadHigh              float64 `json:"load_high"`

	// A reason for more instances has to last for UpHoldSeconds, unless there are
	// more users than room; one for fewer, for DownHoldSeconds, and nothing must
	// have been added or taken away for CoolDownSeconds.
	UpHoldSeconds   float64 `json:"up_hold_seconds"`
	DownHoldSeconds float64 `json:"down_hold_seconds"`
	CoolDownSeconds float64 `json:"cool_down_seconds"`

	// HorizonSeconds is for how long demand is expected to stay as it is: what an
	// instance costs has to pay in that time.
	HorizonSeconds float64 `json:"horizon_seconds"`
	// MinGainPercent is by how much the response time has to fall at least.
	MinGainPercent float64 `json:"min_gain_percent"`
	// InVainSeconds is how long no instance is added for what did not get better by
	// the last one; it doubles each time.
	InVainSeconds float64 `json:"in_vain_seconds"`

	// StartTimeoutSeconds is how long an instance may take beyond what is expected
	// until it counts as failed, UnhealthySeconds how long it may be unhealthy.
	StartTimeoutSeconds float64 `json:"start_timeout_seconds"`
	UnhealthySeconds    float64 `json:"unhealthy_seconds"`
	// BackoffSeconds is how long nothing is started where an instance failed; it
	// doubles each time, up to BackoffMostSeconds.
	BackoffSeconds     float64 `json:"backoff_seconds"`
	BackoffMostSeconds float64 `json:"backoff_most_seconds"`

	// MemoryReservePercent is the part of a node's memory that limits of instances
	// may not claim.
	MemoryReservePercent float64 `json:"memory_reserve_percent"`
	// MostStarts is how many instances of one service are started in one round.
	MostStarts int `json:"most_starts"`

	// What stands in for what nobody has measured or written.
	RoundTripSeconds float64 `json:"round_trip_seconds"`
	StartUpSeconds   float64 `json:"start_up_seconds"`
	PullBPS          uint64  `json:"pull_bps"`
	ImageBytes       uint64  `json:"image_bytes"`
	NodeAvailability float64 `json:"node_availability"` // 0 to 1

	// Rules are the operator's algorithms: CEL expressions by name; see [CheckRule].
	Rules map[string]string `json:"rules,omitempty"`
}

// DefaultPolicy is for small nodes on a local network. The paper says of none of
// these values what it should be; its round trip is 5 ms and its instances start in
// 1.4 s (sections IV.D and IV.E).
func DefaultPolicy() Policy {
	return Policy{
		UsersHighPercent: 80, UsersLowPercent: 60, ResponseHighPercent: 90,
		CPUHighPercent: 90, NodeCPUHighPercent: 85, NodeMemoryHighPercent: 90, LoadHigh: 2,
		UpHoldSeconds: 1, DownHoldSeconds: 60, CoolDownSeconds: 30,
		HorizonSeconds: 300, MinGainPercent: 10, InVainSeconds: 300,
		StartTimeoutSeconds: 60, UnhealthySeconds: 10, BackoffSeconds: 10, BackoffMostSeconds: 600,
		MemoryReservePercent: 10, MostStarts: 8,
		RoundTripSeconds: 0.005, StartUpSeconds: 2, PullBPS: 100e6, ImageBytes: 100e6, NodeAvailability: 0.99,
	}
}

// Check says what of a policy cannot be.
func (p *Policy) Check() error {
	var problems []error
	between := func(name string, value, lowest, most float64) {
		if !(value >= lowest && value <= most) {
			problems = append(problems, fmt.Errorf("%s: %v is not from %v to %v", name, value, lowest, most))
		}
	}
	between("users_high_percent", p.UsersHighPercent, 1, 100)
	between("users_low_percent", p.UsersLowPercent, 0, 0.95*p.UsersHighPercent)
	between("response_high_percent", p.ResponseHighPercent, 1, 100)
	between("cpu_high_percent", p.CPUHighPercent, 1, 100)
	between("node_cpu_high_percent", p.NodeCPUHighPercent, 1, 100)
	between("node_memory_high_percent", p.NodeMemoryHighPercent, 1, 100)
	between("load_high", p.LoadHigh, 0.1, 1000)
	const day = 86400
	for name, seconds := range map[string]float64{
		"up_hold_seconds": p.UpHoldSeconds, "down_hold_seconds": p.DownHoldSeconds, "cool_down_seconds": p.CoolDownSeconds,
		"in_vain_seconds": p.InVainSeconds, "start_timeout_seconds": p.StartTimeoutSeconds, "unhealthy_seconds": p.UnhealthySeconds,
		"backoff_seconds": p.BackoffSeconds, "backoff_most_seconds": p.BackoffMostSeconds,
		"round_trip_seconds": p.RoundTripSeconds, "start_up_seconds": p.StartUpSeconds,
	} {
		between(name, seconds, 0, day)
	}
	between("horizon_seconds", p.HorizonSeconds, 1, day)
	between("min_gain_percent", p.MinGainPercent, 0, 99)
	between("memory_reserve_percent", p.MemoryReservePercent, 0, 100)
	between("most_starts", float64(p.MostStarts), 1, 1000)
	between("pull_bps", float64(p.PullBPS), 1, 1e15)
	between("image_bytes", float64(p.ImageBytes), 0, 1e12)
	between("node_availability", p.NodeAvailability, 0.01, 0.999999)
	for name, rule := range p.Rules {
		if err := CheckRule(rule); err != nil {
			problems = append(problems, fmt.Errorf("rules.%s: %w", name, err))
		}
	}
	return errors.Join(problems...)
}
