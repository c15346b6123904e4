package v1

// Preview says what a change of a container's policy would do, without making it.
type Preview struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Before and After are what the container asks for, without and with the change.
	Before Policy `json:"before"`
	After  Policy `json:"after"`
	// Refused says why the change would be refused; empty if it would be made. Then
	// After is as Before.
	Refused string          `json:"refused,omitempty"`
	Uplinks []UplinkPreview `json:"uplinks"`
}

// UplinkPreview is what a change would do at one uplink.
type UplinkPreview struct {
	Uplink string `json:"uplink"`
	// Refused says what of the policy could not be put into force here.
	Refused string `json:"refused,omitempty"`
	// Shares are all that have one here, in the order of Snapshot.
	Shares []SharePreview `json:"shares"`
}

// SharePreview is what somebody has at an uplink before and after a change.
type SharePreview struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// EntitledBeforeBPS and EntitledAfterBPS are what it can always have.
	EntitledBeforeBPS uint64 `json:"entitled_before_bps"`
	EntitledAfterBPS  uint64 `json:"entitled_after_bps"`
	// AllocatedBeforeBPS and AllocatedAfterBPS are what it gets while everybody wants
	// what they want at the moment.
	AllocatedBeforeBPS uint64 `json:"allocated_before_bps"`
	AllocatedAfterBPS  uint64 `json:"allocated_after_bps"`
	// AdmittedBPS is the minimum that would be in force.
	AdmittedBPS uint64 `json:"admitted_bps"`
}
