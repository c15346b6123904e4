package v1

import "time"

// Runtimes whose containers weir-k8s reports, and the names of these sources. One of RuntimeKubernetes is a pod;
// those of RuntimeContainerd are what containerd runs for none of its other users, as for ctr and nerdctl.
const (
	RuntimeKubernetes = "kubernetes"
	RuntimeContainerd = "containerd"
)

// PodsSilence is how long a reporter of pods may say nothing: then it counts as stopped. One that has
// nothing to report lists all pods again.
const PodsSilence = 30 * time.Second

// Pod is a pod of Kubernetes, or a container of containerd, as weir-k8s reports it to the agent.
type Pod struct {
	// ID is the ID of its sandbox.
	ID string `json:"id"`
	// Namespace is empty for containerd's default one.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Containers are the names of its containers.
	Containers []string `json:"containers,omitempty"`
	// Labels are its policy, by the names that labels have: weir.min for weir.dev/min.
	Labels map[string]string `json:"labels,omitempty"`
	// NetNSPath opens its network namespace; absent if it uses the host's.
	NetNSPath string `json:"netns_path,omitempty"`
	// CgroupPath is its cgroup, relative to the root of the hierarchy.
	CgroupPath string `json:"cgroup_path,omitempty"`
	// Image is the name of a container's image, whose labels are among its own: ImageLabels, or ImageUnknown, the
	// reason why they are unknown. All are absent for a pod.
	Image        string            `json:"image,omitempty"`
	ImageLabels  map[string]string `json:"image_labels,omitempty"`
	ImageUnknown string            `json:"image_unknown,omitempty"`
}

// PodsChange is one line of the body of a request to /v1/pods. A line with neither Started nor
// Stopped lists all pods that run; the first line has to be one.
type PodsChange struct {
	All []Pod `json:"all,omitempty"`
	// Started is a pod that started or changed.
	Started *Pod `json:"started,omitempty"`
	// Admit: Started starts only if its minimum is in force. If the answer says that it is, that outlasts a crash of the agent.
	Admit bool `json:"admit,omitempty"`
	// Stopped is the ID of a pod that stopped.
	Stopped string `json:"stopped,omitempty"`
}

// PodState answers a PodsChange. State and Reason are those of the Container of a pod that started, and
// are empty otherwise.
type PodState struct {
	State  State  `json:"state"`
	Reason string `json:"reason"`
	// MinimumInForce: it has no minimum, or each is in force at each uplink, for all its packets. It is absent where State is
	// empty.
	MinimumInForce *bool `json:"minimum_in_force,omitempty"`
}
