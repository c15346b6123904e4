package spec

import "encoding/json"

// wire is a specification as it is written: in the paper's notation, with numbers.
type wire struct {
	Par struct {
		ServiceName string  `json:"serviceName"`
		ImageName   string  `json:"imageName"`
		ImageSize   float64 `json:"imageSize,omitzero"`
		MaxUsers    int     `json:"maxUsers,omitzero"`
		StartUpTime float64 `json:"startUpTime,omitzero"`
	} `json:"par"`
	QoS struct {
		ResponseTime    float64 `json:"responseTime,omitzero"`
		Availability    float64 `json:"availability,omitzero"`
		NumUsers        int     `json:"numUsers,omitzero"`
		ReplicationTime float64 `json:"replicationTime,omitzero"`
	} `json:"QoS,omitzero"`
	Ports  []Port            `json:"ports,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Limits struct {
		Memory    uint64  `json:"memory,omitzero"` // bytes
		CPUs      float64 `json:"cpus,omitzero"`
		Instances int     `json:"instances,omitzero"`
	} `json:"limits,omitzero"`
	Algorithm string `json:"algorithm,omitempty"`
	Rule      string `json:"rule,omitempty"`

	Container *Container `json:"container,omitempty"`
}

// MarshalJSON writes the specification so that [Parse] reads the same.
func (s Spec) MarshalJSON() ([]byte, error) {
	var w wire
	w.Par.ServiceName, w.Par.ImageName = s.Name, s.Image
	w.Par.ImageSize = float64(s.ImageBytes) / bytesPerMB
	w.Par.MaxUsers, w.Par.StartUpTime = s.MaxUsers, s.StartUpSeconds
	w.QoS.ResponseTime, w.QoS.Availability = s.ResponseSeconds, s.AvailabilityPercent
	w.QoS.NumUsers, w.QoS.ReplicationTime = s.NumUsers, s.ReplicationSeconds
	w.Ports, w.Labels = s.Ports, s.Labels
	w.Limits.Memory, w.Limits.CPUs, w.Limits.Instances = s.Limits.MemoryBytes, s.Limits.CPUs, s.Limits.Instances
	w.Algorithm, w.Rule, w.Container = s.Algorithm, s.Rule, s.Container
	return json.Marshal(w)
}

// UnmarshalJSON is [Parse].
func (s *Spec) UnmarshalJSON(data []byte) error {
	read, err := Parse(data)
	if err == nil {
		*s = read
	}
	return err
}
