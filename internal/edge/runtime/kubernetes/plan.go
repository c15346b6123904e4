package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/share/policy"
)

// fields is an object of Kubernetes, or a part of one, that is written.
type fields = map[string]any

// Annotations of what weir-edge has made. Values of labels are short and have few characters.
const (
	annotationNode  = "weir-edge.dev/node" // the one that the engine prefers
	annotationImage = "weir-edge.dev/image"
	annotationMade  = "weir-edge.dev/made-of"
)

// What the agents' side is called: package claims has the same names.
const (
	annotationPrefix = "weir.dev/"
	deviceClass      = "bandwidth.weir.dev"
)

// containerName is the name of the container in a pod that is the instance.
const containerName = "instance"

// Keys of a service's ConfigMap.
const (
	keyDocument = "specification"
	keyPinned   = "image"
	keyUpdate   = "update"
)

// objectName returns a name as Kubernetes takes it.
func objectName(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "-")) }

// serviceName returns the name of a service's Service, by which pods find it.
func serviceName(service string) string { return objectName(service) }

// recordName returns the name of a service's ConfigMap.
func recordName(service string) string { return objectName("edge-service-" + service) }

// instanceName returns the name of an instance's Deployment.
func instanceName(id string) string { return objectName(proxy.InstanceName(id)) }

// labelsOf returns the labels of what is made for a service.
func labelsOf(service, role string) map[string]string {
	return map[string]string{runtime.LabelService: service, runtime.LabelRole: role}
}

// owner is the ConfigMap of a service: with it goes all that was made for the service.
type owner struct{ name, uid string }

func (o owner) references() []fields {
	return []fields{{"apiVersion": "v1", "kind": "ConfigMap", "name": o.name, "uid": o.uid}}
}

// planRecord returns the ConfigMap of a service, which has what weir-edge knows of it.
func planRecord(s *runtime.Service) (fields, error) {
	update, err := json.Marshal(s.Update)
	if err != nil {
		return nil, fmt.Errorf("write the update of %s: %w", s.Name, err)
	}
	return fields{
		"metadata": fields{"name": recordName(s.Name), "labels": labelsOf(s.Name, roleRecord)},
		"data":     fields{keyDocument: s.Document, keyPinned: s.Pinned, keyUpdate: string(update)},
	}, nil
}

// portName returns the name of a port of users, which pods have as well: by it each pod gets them at the port
// of its own version.
func portName(host uint16) string { return "port-" + strconv.Itoa(int(host)) }

// planService returns the Service of a service; nil for one without ports. Users stay on their node while
// an instance there answers.
func planService(s *runtime.Service, of owner) fields {
	if len(s.Ports) == 0 {
		return nil
	}
	var ports []fields
	for _, p := range s.Ports {
		ports = append(ports, fields{"name": portName(p.Host), "port": p.Host, "targetPort": portName(p.Host), "protocol": "TCP"})
	}
	return fields{
		"metadata": fields{"name": serviceName(s.Name), "labels": labelsOf(s.Name, roleService), "ownerReferences": of.references()},
		"spec": fields{
			"selector": labelsOf(s.Name, runtime.RoleInstance), "ports": ports, "trafficDistribution": "PreferSameNode",
		},
	}
}

// minimums are the rates that each instance claims; 0 for none.
type minimums struct{ out, in uint64 }

func minimumsOf(s *runtime.Service) minimums {
	asks := policy.Resolve(policy.Inputs{Labels: s.Labels})
	return minimums{asks.Policy.MinBPS, asks.In.MinBPS}
}

// templateName returns the name of the template of a service's claims: a template never changes, so another
// minimum has another name.
func (m minimums) templateName(service string) string {
	return objectName(fmt.Sprintf("edge-minimum-%s-%d-%d", service, m.out, m.in))
}

// planTemplate returns the template by which each pod of a service claims its minimum.
func planTemplate(service string, m minimums, of owner) fields {
	capacity := fields{}
	if m.out > 0 {
		capacity["egressBandwidth"] = strconv.FormatUint(m.out, 10)
	}
	if m.in > 0 {
		capacity["ingressBandwidth"] = strconv.FormatUint(m.in, 10)
	}
	return fields{
		"metadata": fields{"name": m.templateName(service), "labels": labelsOf(service, roleTemplate), "ownerReferences": of.references()},
		"spec": fields{"spec": fields{"devices": fields{"requests": []fields{{
			"name": "uplink", "exactly": fields{"deviceClassName": deviceClass, "capacity": fields{"requests": capacity}},
		}}}}},
	}
}

// servesOn is for how many seconds a pod with ports still serves after it was stopped: all nodes have to learn that
// users go elsewhere. Then it has endsWithin to end, Kubernetes' default.
const servesOn, endsWithin = 5, 30

// apart returns the constraint that a pod goes to a node without one of its service: there are never as many nodes
// as minDomains, so the least that a node has counts as 0, which no node may exceed by more than this pod. Unlike an
// anti-affinity it keeps no later pod away: the one that replaces this one may start beside it.
func apart(service string) fields {
	return fields{
		"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule", "minDomains": math.MaxInt32,
		"labelSelector": fields{"matchLabels": labelsOf(service, runtime.RoleInstance)},
	}
}

// planInstance returns the Deployment of an instance. The node is a preference: the scheduler places the
// pod. With template the pod claims its minimum by that, without by annotations.
func planInstance(s *runtime.Service, id, node, template string, of owner) fields {
	labels := labelsOf(s.Name, runtime.RoleInstance)
	labels[runtime.LabelInstance] = id
	container := fields{"name": containerName, "image": s.ImageToRun()}
	resources := fields{}
	pod := fields{
		"enableServiceLinks": false, "automountServiceAccountToken": false, "containers": []fields{container},
		"affinity": fields{"nodeAffinity": fields{"preferredDuringSchedulingIgnoredDuringExecution": []fields{{
			"weight":     100,
			"preference": fields{"matchFields": []fields{{"key": "metadata.name", "operator": "In", "values": []string{node}}}},
		}}}},
	}
	if s.Apart {
		pod["topologySpreadConstraints"] = []fields{apart(s.Name)}
	}
	if template != "" {
		pod["resourceClaims"] = []fields{{"name": "minimum", "resourceClaimTemplateName": template}}
		resources["claims"] = []fields{{"name": "minimum"}}
	}
	annotations := map[string]string{}
	for label, value := range s.Labels {
		claimed := template != "" && (label == policy.LabelMin || label == policy.LabelIn+"min")
		if key, ours := strings.CutPrefix(label, policy.Prefix); ours && !claimed {
			annotations[annotationPrefix+key] = value
		}
	}
	limits := fields{}
	if s.MemoryBytes > 0 {
		limits["memory"] = strconv.FormatUint(s.MemoryBytes, 10)
	}
	if s.CPUs > 0 {
		limits["cpu"] = strconv.FormatFloat(s.CPUs, 'f', 3, 64)
		resources["requests"] = fields{"cpu": "0"} // the engine counts processors by their use
	}
	if len(limits) > 0 {
		resources["limits"] = limits
	}
	container["resources"] = resources
	var ports []fields
	for _, p := range s.Ports {
		ports = append(ports, fields{"name": portName(p.Host), "containerPort": p.Container})
	}
	if len(ports) > 0 {
		container["ports"] = ports
		probe := fields{"periodSeconds": 2, "tcpSocket": fields{"port": s.Ports[0].Container}}
		if path := s.Labels[spec.LabelHealth]; path != "" {
			probe = fields{"periodSeconds": 2, "httpGet": fields{"path": path, "port": s.Ports[0].Container}}
		}
		container["readinessProbe"] = probe
		container["lifecycle"] = fields{"preStop": fields{"sleep": fields{"seconds": servesOn}}}
		pod["terminationGracePeriodSeconds"] = servesOn + endsWithin
	}
	return fields{
		"metadata": fields{
			"name": instanceName(id), "labels": labels, "ownerReferences": of.references(),
			"annotations": map[string]string{annotationNode: node, annotationImage: s.Image, annotationMade: s.Made},
		},
		"spec": fields{
			"replicas": 1, "revisionHistoryLimit": 0, "selector": fields{"matchLabels": labels},
			"template": fields{"metadata": fields{"labels": labels, "annotations": annotations}, "spec": pod},
		},
	}
}

// cannotRun returns why Kubernetes does not run a service; nil if it does.
func cannotRun(s *runtime.Service) error {
	if s.Container != nil {
		return fmt.Errorf("deploy %s: Compose files run on Docker and Swarm; on Kubernetes weir-edge takes specifications in JSON", s.Name)
	}
	return nil
}

// metadata is what weir-edge reads of all objects.
type metadata struct {
	Name, UID, ResourceVersion string
	Labels, Annotations        map[string]string
	CreationTimestamp          time.Time
	DeletionTimestamp          *time.Time
	OwnerReferences            []struct{ Name, UID string }
}

// isOwn reports whether weir-edge has made an object, for a service.
func (m *metadata) isOwn(service, role string) bool {
	return m.Labels[runtime.LabelService] == service && m.Labels[runtime.LabelRole] == role
}

// condition is one of an object.
type condition struct{ Type, Status, Reason, Message string }

func conditionOf(list []condition, kind string) condition {
	i := slices.IndexFunc(list, func(c condition) bool { return c.Type == kind })
	if i < 0 {
		return condition{}
	}
	return list[i]
}

type (
	taint struct{ Key, Effect string }
	node  struct {
		Metadata metadata
		Spec     struct {
			Unschedulable bool
			Taints        []taint
		}
		Status struct {
			Allocatable map[string]string
			Addresses   []struct{ Type, Address string }
			Conditions  []condition
			NodeInfo    struct{ Architecture string }
		}
	}
	configMap struct {
		Metadata metadata
		Data     map[string]string
	}
	deployment struct {
		Metadata metadata
		Status   struct{ Conditions []condition }
	}
	pod struct {
		Metadata metadata
		Spec     struct {
			NodeName   string
			Containers []struct {
				Name           string
				ReadinessProbe *struct{}
			}
		}
		Status struct {
			Phase, Reason, Message, PodIP string
			StartTime                     time.Time
			Conditions                    []condition
			ContainerStatuses             []containerStatus
		}
	}
	containerStatus struct {
		Name             string
		Ready            bool // by kubelet; the pod's condition also says whether its node is there
		RestartCount     int
		State, LastState struct {
			Waiting    *struct{ Reason, Message string }
			Running    *struct{ StartedAt time.Time }
			Terminated *struct {
				Reason, Message string
				ExitCode        int
			}
		}
	}
)

// Taints that Kubernetes sets by the state of a node begin with taintsOfKubernetes or taintsOfCloud. An operator who
// has switched a node off sets taintOff.
const (
	taintsOfKubernetes = "node.kubernetes.io/"
	taintsOfCloud      = "node.cloudprovider.kubernetes.io/"
	taintOff           = taintsOfKubernetes + "out-of-service"
)

// keepsAway reports whether an operator keeps pods away by a taint. Kubernetes' own taints do not count: it taints
// every silent node, and a silent node is not away on purpose.
func (t *taint) keepsAway() bool {
	own := strings.HasPrefix(t.Key, taintsOfKubernetes) || strings.HasPrefix(t.Key, taintsOfCloud)
	return (t.Effect == "NoSchedule" || t.Effect == "NoExecute") && (!own || t.Key == taintOff)
}

// nodesOf converts nodes and sorts them by name. One with a taint of an operator counts as drained.
func nodesOf(items []node) []runtime.Node {
	var nodes []runtime.Node
	for _, n := range items {
		ready := conditionOf(n.Status.Conditions, "Ready")
		made := runtime.Node{
			ID: n.Metadata.Name, Name: n.Metadata.Name, Ready: ready.Status == "True", Draining: n.Spec.Unschedulable,
			CPUs: int(quantity(n.Status.Allocatable["cpu"])), MemoryBytes: uint64(quantity(n.Status.Allocatable["memory"])),
			Architecture: runtime.Architecture(n.Status.NodeInfo.Architecture),
		}
		for _, t := range n.Spec.Taints {
			made.Draining = made.Draining || t.keepsAway()
		}
		for _, a := range n.Status.Addresses {
			if address, err := netip.ParseAddr(a.Address); err == nil && a.Type == "InternalIP" && !made.Address.IsValid() {
				made.Address = address
			}
		}
		if !made.Ready {
			made.Reason = "Kubernetes says that it is not ready: " + cmp.Or(ready.Message, ready.Reason, "it has said nothing yet")
		}
		nodes = append(nodes, made)
	}
	slices.SortFunc(nodes, func(a, b runtime.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

// units are the suffixes of quantities that nodes report.
var units = map[string]float64{"m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}

// quantity returns a quantity of Kubernetes, as "3500m" or "16Gi"; 0 for what is none.
func quantity(text string) float64 {
	number := strings.TrimRight(text, "mkKMGTi")
	value, err := strconv.ParseFloat(number, 64)
	unit, known := units[text[len(number):]]
	switch {
	case err != nil || value < 0 || unit == 0 && len(number) < len(text):
		return 0
	case known:
		return value * unit
	}
	return value
}

// stateOf converts what weir-edge has in a namespace. Deployments and pods that end are left out: their
// names are free. So are copies that others have made of an object, and their pods, which have the labels as well.
func stateOf(records []configMap, deployments []deployment, pods []pod, namespace string) (state runtime.State) {
	owners := map[string]owner{}
	for _, r := range records {
		name := r.Metadata.Labels[runtime.LabelService]
		if !r.Metadata.isOwn(name, roleRecord) || r.Metadata.Name != recordName(name) || r.Metadata.DeletionTimestamp != nil {
			continue
		}
		s := runtime.Service{Name: name, Document: r.Data[keyDocument], Pinned: r.Data[keyPinned]}
		_ = json.Unmarshal([]byte(r.Data[keyUpdate]), &s.Update) // there is none before the first
		state.Services = append(state.Services, s)
		owners[name] = owner{r.Metadata.Name, r.Metadata.UID}
	}
	newest := map[string]pod{}
	for _, p := range pods {
		id := p.Metadata.Labels[runtime.LabelInstance]
		if there, is := newest[id]; p.isOf(instanceName(id)) && p.Metadata.DeletionTimestamp == nil && (!is || p.succeeds(&there)) {
			newest[id] = p
		}
	}
	for _, d := range deployments {
		service, id := d.Metadata.Labels[runtime.LabelService], d.Metadata.Labels[runtime.LabelInstance]
		isOurs := d.Metadata.isOwn(service, runtime.RoleInstance) && d.Metadata.Name == instanceName(id) && owners[service].owns(&d.Metadata)
		if !isOurs || id == "" || d.Metadata.DeletionTimestamp != nil {
			continue
		}
		i := runtime.Instance{
			ID: id, Service: service, Node: d.Metadata.Annotations[annotationNode], Image: d.Metadata.Annotations[annotationImage],
			Made: d.Metadata.Annotations[annotationMade], Phase: runtime.Starting,
		}
		if p, is := newest[id]; is {
			describe(&i, &p, namespace)
		} else {
			i.Waits, i.Reason = true, conditionOf(d.Status.Conditions, "ReplicaFailure").Message
		}
		state.Instances = append(state.Instances, i)
	}
	slices.SortFunc(state.Services, func(a, b runtime.Service) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(state.Instances, func(a, b runtime.Instance) int { return strings.Compare(a.ID, b.ID) })
	return state
}

// isOf reports whether a pod is of a Deployment: its ReplicaSet has the Deployment's name and the hash of the template.
func (p *pod) isOf(deployment string) bool {
	name := deployment + "-" + p.Metadata.Labels["pod-template-hash"]
	return slices.ContainsFunc(p.Metadata.OwnerReferences, func(of struct{ Name, UID string }) bool { return of.Name == name })
}

// succeeds reports whether a pod is the present one of two of an instance: one that has ended stays in the listing.
func (p *pod) succeeds(other *pod) bool {
	if p.hasEnded() != other.hasEnded() {
		return other.hasEnded()
	}
	return other.Metadata.CreationTimestamp.Before(p.Metadata.CreationTimestamp)
}

func (p *pod) hasEnded() bool { return p.Status.Phase == "Failed" || p.Status.Phase == "Succeeded" }

// isProbed reports whether the pod has a readiness probe. One without is ready as soon as it runs.
func (p *pod) isProbed() bool {
	for _, c := range p.Spec.Containers {
		if c.Name == containerName {
			return c.ReadinessProbe != nil
		}
	}
	return false
}

// isPulling reports whether a pod has its network, and its container does not exist yet: kubelet fetches the
// image, and has not failed to.
func (p *pod) isPulling(c *containerStatus) bool {
	return c.State.Waiting.Reason == "ContainerCreating" && conditionOf(p.Status.Conditions, "PodReadyToStartContainers").Status == "True"
}

// describe adds to an instance what its pod says.
func describe(i *runtime.Instance, p *pod, namespace string) {
	i.Node, i.Waits = cmp.Or(p.Spec.NodeName, i.Node), p.Spec.NodeName == "" && !p.hasEnded()
	i.ContainerID, i.Run, i.StartedAt = namespace+"/"+p.Metadata.Name, p.Metadata.UID, p.Status.StartTime
	at := slices.IndexFunc(p.Status.ContainerStatuses, func(c containerStatus) bool { return c.Name == containerName }) // others may add theirs
	if at < 0 {
		placed := conditionOf(p.Status.Conditions, "PodScheduled")
		if i.Reason = cmp.Or(p.Status.Message, p.Status.Reason); placed.Status == "False" {
			i.Reason = "the scheduler: " + placed.Message
		}
		if p.Status.Phase == "Failed" {
			i.Phase = runtime.Ended
		}
		return
	}
	c := &p.Status.ContainerStatuses[at]
	i.Run += "/" + strconv.Itoa(c.RestartCount)
	ended := cmp.Or(c.State.Terminated, c.LastState.Terminated)
	switch {
	case c.State.Running != nil:
		i.Phase, i.StartedAt = runtime.Running, c.State.Running.StartedAt
		switch {
		case !p.isProbed():
		case c.Ready:
			i.Health = runtime.HealthServed
		default:
			i.Health = runtime.HealthStarting
		}
	case ended != nil:
		i.Phase, i.Reason = runtime.Ended, fmt.Sprintf("it ended with exit code %d: %s", ended.ExitCode, cmp.Or(ended.Message, ended.Reason))
	case c.State.Waiting != nil:
		i.Waits = i.Waits || p.isPulling(c)
		i.Reason = strings.TrimSuffix(c.State.Waiting.Reason+": "+c.State.Waiting.Message, ": ")
	}
}
