package swarm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/moby/moby/api/types/swarm"
	"github.com/moby/moby/client"

	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
)

// # Managed services
//
// A service that its owner made with the label weir-edge.manage=true is moved by a placement constraint,
// which is the swarm's own way. It is there during the move only: without it the task stays where it is,
// and the swarm is free to restart it on any node. Meanwhile a label of the service says which constraint is
// weir-edge's, and what was before: a new task starts before the old one ends, so a node that the swarm
// cannot use costs nothing.
//
// While two tasks are to run, a service without the constraint would leave the swarm to choose which of them
// ends. So a move is taken back by a constraint to the node where it runs first, until one task is left.

// labelMove has the move of a service, as JSON of move.
const labelMove = "weir-edge.move"

type move struct {
	// Node is the ID of the node that it is bound to.
	Node string `json:"node"`
	// Back: it runs there, and the task of a move that is taken back is to end.
	Back bool `json:"back,omitempty"`
	// Order is the order of updates that it had; nil: it had no configuration of updates.
	Order *swarm.UpdateOrder `json:"order,omitempty"`
	// Newest is when its newest task was made. Later ones are of this move.
	Newest time.Time `json:"newest"`
}

// moveOf returns the move of a service with these labels; the zero value without one.
func moveOf(labels map[string]string) (m move) {
	_ = json.Unmarshal([]byte(labels[labelMove]), &m)
	return m
}

// isManaged reports whether a service is one of others that weir-edge may move, or has bound to a node.
func isManaged(s *swarm.Service) bool {
	_, own := s.Spec.Labels[runtime.LabelService]
	return !own && s.Spec.TaskTemplate.ContainerSpec != nil && (s.Spec.Labels[runtime.LabelManage] == "true" || moveOf(s.Spec.Labels).Node != "")
}

// managed converts a managed service and its tasks, past ones included.
func managed(api *client.Client, s swarm.Service, tasks []swarm.Task, nodes []runtime.Node) runtime.Managed {
	m := runtime.Managed{Spec: specOf(&s.Spec), Wanted: s.Spec.Labels[runtime.LabelManage] == "true"}
	moving := moveOf(s.Spec.Labels)
	if m.Returns = moving.Back; !m.Returns {
		m.Bound = nodeOf(nodes, moving.Node).Name
	}
	var back move // from this one
	wanted := 0
	slices.SortFunc(tasks, func(a, b swarm.Task) int { return b.CreatedAt.Compare(a.CreatedAt) })
	for i, t := range tasks {
		if slices.ContainsFunc(t.NetworksAttachments, func(n swarm.NetworkAttachment) bool { return n.Network.Spec.Name == "host" }) {
			m.Spec.Container.Network.Mode = "host"
		}
		if !hasEnded(t) && slices.Contains([]swarm.TaskState{swarm.TaskStateReady, swarm.TaskStateRunning}, t.DesiredState) {
			wanted++
		}
		if t.CreatedAt.After(moving.Newest) && (i == 0 || hasEnded(t)) && m.Node == "" {
			m.Waits = cmp.Or(m.Waits, t.Status.Err)
		}
		if m.Node == "" && t.Status.State == swarm.TaskStateRunning && t.DesiredState == swarm.TaskStateRunning && t.Status.ContainerStatus != nil {
			back = move{Node: t.NodeID, Back: true}
			m.Node, m.ContainerID = nodeOf(nodes, t.NodeID).Name, t.Status.ContainerStatus.ContainerID
		}
	}
	if wanted < 2 {
		back = move{}
	}
	m.Stays = stays(&s, &m.Spec)
	m.Bind = func(ctx context.Context, node string) error {
		next := back
		if at := slices.IndexFunc(nodes, func(n runtime.Node) bool { return n.Name == node }); at >= 0 {
			next = move{Node: nodes[at].ID}
		}
		if next.Back && moving.Back && next.Node == moving.Node {
			return nil // the other task has not ended yet
		}
		next.Newest = s.CreatedAt
		if len(tasks) > 0 {
			next.Newest = tasks[0].CreatedAt
		}
		return bind(ctx, api, &s, next)
	}
	return m
}

// specOf returns a managed service as far as it matters for where its task may run.
func specOf(s *swarm.ServiceSpec) spec.Spec {
	c := s.TaskTemplate.ContainerSpec
	made := spec.Spec{Name: s.Name, Image: c.Image, Labels: c.Labels, Algorithm: spec.AlgorithmHybrid, Limits: spec.Limits{Instances: 1}, Container: &spec.Container{}}
	if r := s.TaskTemplate.Resources; r != nil && r.Limits != nil {
		made.Limits.MemoryBytes = uint64(max(r.Limits.MemoryBytes, 0))
	}
	for _, m := range c.Mounts {
		to := spec.Mount{Type: string(m.Type), Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly}
		if m.VolumeOptions != nil && m.VolumeOptions.DriverConfig != nil {
			to.Driver, to.Options = m.VolumeOptions.DriverConfig.Name, m.VolumeOptions.DriverConfig.Options
		}
		made.Container.Mounts = append(made.Container.Mounts, to)
	}
	if s.EndpointSpec != nil {
		for _, p := range s.EndpointSpec.Ports {
			if p.PublishMode == swarm.PortConfigPublishModeHost {
				made.Container.Network.Ports = append(made.Container.Network.Ports, spec.HostPort{Host: uint16(p.PublishedPort), Container: uint16(p.TargetPort), Protocol: string(p.Protocol)})
			}
		}
	}
	return made
}

// stays returns why a managed service is not moved; empty if it may be.
func stays(s *swarm.Service, parsed *spec.Spec) string {
	r := s.Spec.Mode.Replicated
	switch {
	case r == nil:
		return "it is global, or a job"
	case r.Replicas != nil && *r.Replicas != 1:
		return fmt.Sprintf("it has %d replicas, and only services with one are moved", *r.Replicas)
	case parsed.Keeper() != "":
		return parsed.Keeper() + " keeps it there"
	case parsed.IsExclusive():
		return "its volume is for one task at a time"
	case s.UpdateStatus != nil && !slices.Contains([]swarm.UpdateState{"", swarm.UpdateStateCompleted, swarm.UpdateStateRollbackCompleted}, s.UpdateStatus.State):
		return "its update is " + string(s.UpdateStatus.State)
	}
	return ""
}

// bind begins a move of a service, or ends the one that there is. Errors: ErrChanged.
func bind(ctx context.Context, api *client.Client, s *swarm.Service, next move) error {
	rebind(&s.Spec, next)
	_, err := api.ServiceUpdate(ctx, s.ID, client.ServiceUpdateOptions{Version: s.Version, Spec: s.Spec})
	if isOutOfSequence(err) {
		err = runtime.ErrChanged
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", s.Spec.Name, err)
	}
	return nil
}

// rebind leaves a service as its owner made it or, if next has a node, bound to that.
func rebind(s *swarm.ServiceSpec, next move) {
	p := s.TaskTemplate.Placement
	if p == nil {
		p = &swarm.Placement{}
	}
	if was := moveOf(s.Labels); was.Node != "" {
		for i, text := range slices.Backward(p.Constraints) { // the owner may have the same one, before it
			if text == toNode+was.Node {
				p.Constraints = slices.Delete(p.Constraints, i, i+1)
				break
			}
		}
		switch u := s.UpdateConfig; {
		case u == nil || u.Order != swarm.UpdateOrderStartFirst: // its owner has changed it
		case was.Order != nil:
			u.Order = *was.Order
		case u.Parallelism == 1 && u.Delay == 0 && u.MaxFailureRatio == 0 && (u.FailureAction == "" || u.FailureAction == swarm.UpdateFailureActionPause):
			s.UpdateConfig = nil
		default:
			u.Order = swarm.UpdateOrderStopFirst
		}
		delete(s.Labels, labelMove)
	}
	if next.Node == "" {
		return
	}
	if u := s.UpdateConfig; u != nil {
		order := u.Order
		next.Order = &order
	} else {
		s.UpdateConfig = &swarm.UpdateConfig{Parallelism: 1}
	}
	s.UpdateConfig.Order = swarm.UpdateOrderStartFirst
	p.Constraints = append(p.Constraints, toNode+next.Node)
	s.TaskTemplate.Placement = p
	text, _ := json.Marshal(next) // it has no value that cannot be written
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	s.Labels[labelMove] = string(text)
}

// toNode begins a constraint to the node with an ID.
const toNode = "node.id=="

// unbind ends all moves of services.
func unbind(ctx context.Context, api *client.Client, services []swarm.Service) (err error) {
	for i := range services {
		if isManaged(&services[i]) {
			err = errors.Join(err, bind(ctx, api, &services[i], move{}))
		}
	}
	return err
}
