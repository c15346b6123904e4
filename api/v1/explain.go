package v1

// Explanation says why a container gets what it gets.
type Explanation struct {
	Container Container `json:"container"`
	// Policy is what the container asks for, value by value.
	Policy []ExplainedValue `json:"policy"`
	Shares []ExplainedShare `json:"shares"`
}

// ExplainedValue is one value of a policy.
type ExplainedValue struct {
	Name string `json:"name"`
	// Value is spelled as in labels; "none" where there is none.
	Value string `json:"value"`
	From  Layer  `json:"from"`
	// Notes say what is in force of it, and what it means here.
	Notes []string `json:"notes,omitempty"`
}

// ExplainedShare says in words why a container is entitled to so much of one
// uplink, why it gets so much now, and what it would need to get more.
type ExplainedShare struct {
	Uplink       string   `json:"uplink"`
	EntitledBPS  uint64   `json:"entitled_bps"`
	Entitled     []string `json:"entitled"`
	AllocatedBPS uint64   `json:"allocated_bps"`
	Allocated    []string `json:"allocated"`
	ForMore      []string `json:"for_more"`
	// Classes say what each of the container's traffic classes gets of that, and why.
	Classes []ExplainedClass `json:"classes,omitempty"`
}

// ExplainedClass says what one traffic class of a container gets of its share.
type ExplainedClass struct {
	Class   Class    `json:"class"`
	RateBPS uint64   `json:"rate_bps"`
	Because []string `json:"because"`
}
