package v1

// Explanation says why a container gets what it gets.
type Explanation struct {
	Container Container `json:"container"`
	// Policy is the container's policy, value by value.
	Policy []ExplainedValue `json:"policy"`
	Shares []ExplainedShare `json:"shares"`
	// InPolicy and InShares explain what the container receives; absent where that is not shared.
	InPolicy []ExplainedValue `json:"in_policy,omitempty"`
	InShares []ExplainedShare `json:"in_shares,omitempty"`
}

// ExplainedValue is one value of a policy.
type ExplainedValue struct {
	Name string `json:"name"`
	// Value is spelled as in labels; "none" if not set.
	Value string `json:"value"`
	From  Layer  `json:"from"`
	// Notes say which part of the value is in force, and its effect here.
	Notes []string `json:"notes,omitempty"`
}

// ExplainedShare explains a container's entitlement to an uplink, its current allocation,
// and what would increase it.
type ExplainedShare struct {
	Uplink       string   `json:"uplink"`
	EntitledBPS  uint64   `json:"entitled_bps"`
	Entitled     []string `json:"entitled"`
	AllocatedBPS uint64   `json:"allocated_bps"`
	Allocated    []string `json:"allocated"`
	ForMore      []string `json:"for_more"`
	// Classes explain the parts of the container's traffic classes.
	Classes []ExplainedClass `json:"classes,omitempty"`
}

// ExplainedClass explains the part that a traffic class has of its container's share.
type ExplainedClass struct {
	Class   Class    `json:"class"`
	RateBPS uint64   `json:"rate_bps"`
	Because []string `json:"because"`
}
