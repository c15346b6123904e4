package model

import (
	"context"
	"fmt"
)

// LLQ is a port in the units of networks.
type LLQ struct {
	RateBPS     float64
	PacketBytes float64 // mean size
	ArrivalBPS  [3]float64
	Places      [3]int
	// AFRateBPS is AF's minimum; BE is served at the rest.
	AFRateBPS     float64
	PollPerSecond float64

	AfterEF AfterEF
	Switch  Switch
	Empty   Empty
}

// Paper returns the port of section IV.C. Its theta of "0.01 s" is read as a time: see
// docs/model.md.
func Paper() LLQ {
	return LLQ{
		RateBPS: 100e6, PacketBytes: 1000, ArrivalBPS: [3]float64{33.3e6, 33.3e6, 33.3e6}, Places: [3]int{5, 5, 5},
		AFRateBPS: 40e6, PollPerSecond: 100, AfterEF: Resume, Switch: AtPacketEnd, Empty: Lend,
	}
}

// ServiceBPS returns the rate at which each queue is served.
func (l LLQ) ServiceBPS() [3]float64 {
	return [3]float64{l.RateBPS, l.AFRateBPS, l.RateBPS - l.AFRateBPS}
}

// BitsPerPacket returns the mean size of a packet in bits.
func (l LLQ) BitsPerPacket() float64 { return 8 * l.PacketBytes }

// Port returns the same port in packets per second.
func (l LLQ) Port() (Port, error) {
	switch {
	case !(l.PacketBytes > 0):
		return Port{}, fmt.Errorf("packets have %v bytes; give a size above 0", l.PacketBytes)
	case !(l.RateBPS > 0):
		return Port{}, fmt.Errorf("the port sends %v bit/s; give a rate above 0", l.RateBPS)
	case !(l.AFRateBPS > 0 && l.AFRateBPS < l.RateBPS):
		return Port{}, fmt.Errorf("AF is served at %v bit/s of the port's %v; give a rate above 0 and below the port's, BE is served at the rest",
			l.AFRateBPS, l.RateBPS)
	}
	port := Port{Places: l.Places, PollPerSecond: l.PollPerSecond, AfterEF: l.AfterEF, Switch: l.Switch, Empty: l.Empty}
	for q, rate := range l.ServiceBPS() {
		port.ServicePPS[q] = rate / l.BitsPerPacket()
		port.ArrivalPPS[q] = l.ArrivalBPS[q] / l.BitsPerPacket()
	}
	return port, port.Check()
}

// Solve computes what the port does in the long run.
func (l LLQ) Solve(ctx context.Context) (*Result, error) {
	port, err := l.Port()
	if err != nil {
		return nil, err
	}
	return Solve(ctx, port)
}
