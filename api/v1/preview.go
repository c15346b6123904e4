package v1

// Preview is the effect of a policy change that was not made.
type Preview struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Before and After are the container's policy without and with the change.
	Before Policy `json:"before"`
	After  Policy `json:"after"`
	// Refused says why the change would be refused; then After equals Before. Empty if the
	// change is possible.
	Refused string          `json:"refused,omitempty"`
	Uplinks []UplinkPreview `json:"uplinks"`
}

// UplinkPreview is the effect of a change at one uplink.
type UplinkPreview struct {
	Uplink string `json:"uplink"`
	// Refused says which part of the policy could not be admitted here.
	Refused string `json:"refused,omitempty"`
	// Shares are the shares of all containers at this uplink, in the order of Snapshot.
	Shares []SharePreview `json:"shares"`
}

// SharePreview is a container's share of an uplink before and after a change.
type SharePreview struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// EntitledBeforeBPS and EntitledAfterBPS are its entitlements.
	EntitledBeforeBPS uint64 `json:"entitled_before_bps"`
	EntitledAfterBPS  uint64 `json:"entitled_after_bps"`
	// AllocatedBeforeBPS and AllocatedAfterBPS are its allocations at the current demands.
	AllocatedBeforeBPS uint64 `json:"allocated_before_bps"`
	AllocatedAfterBPS  uint64 `json:"allocated_after_bps"`
	// AdmittedBPS is the minimum that would be admitted.
	AdmittedBPS uint64 `json:"admitted_bps"`
}
