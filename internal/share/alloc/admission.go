package alloc

import (
	"fmt"

	"github.com/weir-project/weir/internal/share/policy"
)

// Admission decides which floors can be guaranteed (design, section 3, point 4; qCon,
// section 3.3.3). It stores no state: the caller passes the admitted floors, asks for one
// container at a time in an order of its choice, and never revokes an admitted floor
// because of a refusal.
type Admission struct {
	CapacityBPS uint64 // the uplink's rate, bits per second
	ReserveBPS  uint64 // part of the rate that floors cannot claim
}

// BudgetBPS is the rate that floors may claim together, in bits per second: the
// capacity less the reserve, or 0 if the reserve is larger.
func (a Admission) BudgetBPS() uint64 { return a.CapacityBPS - min(a.ReserveBPS, a.CapacityBPS) }

// Admit returns nil if one container's floor can be guaranteed. othersBPS is the sum of the
// floors admitted for all other containers, heldBPS the floor admitted for this one so far
// (0 for a new one), askedBPS the new floor; all in bits per second. A floor that does not
// rise is always admitted, even if the floors no longer fit because the uplink's rate was
// lowered. A refusal is a *[FloorError]; heldBPS then stays admitted.
func (a Admission) Admit(othersBPS, heldBPS, askedBPS uint64) error {
	if askedBPS <= heldBPS {
		return nil
	}
	budget := a.BudgetBPS()
	free := budget - min(othersBPS, budget)
	if askedBPS <= free {
		return nil
	}
	return &FloorError{
		AskedBPS:    askedBPS,
		FreeBPS:     free,
		HeldBPS:     heldBPS,
		OthersBPS:   othersBPS,
		CapacityBPS: a.CapacityBPS,
		ReserveBPS:  a.ReserveBPS,
	}
}

// FloorError is the refusal of a floor. Rates are bits per second.
type FloorError struct {
	AskedBPS    uint64 // the floor asked for
	FreeBPS     uint64 // highest floor that would have been admitted
	HeldBPS     uint64 // the container's current floor, which stays in force
	OthersBPS   uint64 // the floors of all other containers together
	CapacityBPS uint64 // the uplink's rate
	ReserveBPS  uint64 // part of the rate that floors cannot claim
}

// Error returns the requested floor, the free rate, and what to do.
func (e *FloorError) Error() string {
	remedy := "lower the minimum of another container"
	if e.FreeBPS > e.HeldBPS {
		remedy = fmt.Sprintf("ask for at most %s or %s", policy.FormatRate(e.FreeBPS), remedy)
	}
	return fmt.Sprintf("minimum %s cannot be guaranteed: %s is free (uplink %s, reserve %s, other minimums %s); %s",
		policy.FormatRate(e.AskedBPS), policy.FormatRate(e.FreeBPS), policy.FormatRate(e.CapacityBPS),
		policy.FormatRate(e.ReserveBPS), policy.FormatRate(e.OthersBPS), remedy)
}
