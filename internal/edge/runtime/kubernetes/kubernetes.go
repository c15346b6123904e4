// Package kubernetes runs services in a namespace of a Kubernetes cluster. Membership, placement, restarts
// and the way of users to instances are Kubernetes' own.
//
// A service is a ConfigMap, which has the specification and owns all else, and a Service whose users stay
// on their node while an instance there answers. An instance is a Deployment of one replica: the engine
// chooses how many there are and which node each prefers, and Kubernetes' scheduler places their pods. (One
// Deployment of all instances has one template for all: a preference or a version of one of them would
// start the others anew.) Each pod has the service's minimum: as a claim, which the scheduler counts, where
// the cluster has the class bandwidth.weir.dev, else as an annotation.
//
// weir-edge changes and removes only what has its labels. An object of that name without them is refused.
//
// Limits: there are no proxies. Users are the connections of pods, which agents count, and their response times are not
// known. Where no registry says the digest of an image, kubelets get it by its name.
package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/runtime"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/lease"
)

// Kind is the runtime's.
const Kind = "kubernetes"

// Roles of objects beside those of package runtime.
const (
	roleRecord   = "record"
	roleService  = "service"
	roleTemplate = "template"
	roleLease    = "lease"
)

// Runtime is a namespace of a cluster. It implements runtime.Runtime.
type Runtime struct {
	api       *api
	namespace string

	mu sync.Mutex // guards what follows
	// nodes were listed at listed, with nodesAt before.
	nodes   []runtime.Node
	listed  time.Time
	nodesAt mark
	// last is the last listing of what weir-edge has.
	last listing
	// unlike is since when the Service of a service differs from the planned one, by the service's name.
	unlike map[string]time.Time
}

// nodesEvery is how often nodes are listed at most. Each takes about 10 KB, and Kubernetes itself takes 40 s to notice
// that one has failed.
const nodesEvery = 5 * time.Second

// listAgain is how long a listing counts at most while watches say nothing: an API server that has lost its etcd answers
// pings and keeps watches open, but refuses to list.
const listAgain = 30 * time.Second

// lostAfter is how long a Service has to be missing or changed until it counts as lost: a deployment of the
// service writes the ConfigMap first.
const lostAfter = 3 * time.Second

// New returns the namespace of a kubeconfig's context, or of the pod that this program runs in. It makes no request.
func New(kubeconfig string) (*Runtime, error) {
	a, namespace, err := logIn(kubeconfig)
	if err != nil {
		return nil, err
	}
	return newRuntime(a, namespace), nil
}

func newRuntime(a *api, namespace string) *Runtime {
	return &Runtime{api: a, namespace: namespace, unlike: map[string]time.Time{}}
}

// At returns the API server and the namespace, in words.
func (r *Runtime) At() string { return r.api.server + " " + r.namespace }

// leaseName is the name of the Lease that the weir-edge of a namespace has.
const leaseName = "weir-edge"

// Lead takes part in the election of the one weir-edge that manages the namespace, under a name that no other one has. While
// another weir-edge holds the lease, this runtime returns errors instead of states and changes nothing. Lead returns when the
// first request has succeeded or failed, or ctx has ended; end gives the lease back.
func (r *Runtime) Lead(ctx context.Context, identity string, log *slog.Logger) (end func()) {
	stopped := ctx.Done()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // until the last change is made
	held := lease.New(lease.Options{
		Do: r.api.callForLease, IsMissing: func(err error) bool { return isCode(err, http.StatusNotFound) },
		Namespace: url.PathEscape(r.namespace), Name: leaseName, Identity: identity, Labels: labelsOf("", roleLease),
	})
	r.api.lease = held
	ended, answered := make(chan struct{}), make(chan struct{})
	answer := sync.OnceFunc(func() { close(answered) })
	go func() {
		defer close(ended)
		for held.Acquire(ctx, func(error) { answer() }) == nil {
			log.Info("leads the namespace", "name", identity)
			answer()
			if err := held.Keep(ctx); err != nil {
				log.Warn("does not lead the namespace any more", "reason", err)
			}
		}
		answer()
	}()
	select {
	case <-answered:
	case <-stopped:
	}
	return func() { cancel(); <-ended }
}

// Kind implements runtime.Runtime.
func (r *Runtime) Kind() string { return Kind }

// Close implements runtime.Runtime.
func (r *Runtime) Close() error {
	r.api.http.CloseIdleConnections()
	return nil
}

// The kinds of objects, as their paths have them.
const (
	configMaps  = "configmaps"
	services    = "services"
	deployments = "deployments"
	templates   = "resourceclaimtemplates"
	pods        = "pods"
	leases      = "leases"
)

// path returns the path of an object; of all of a kind without a name.
func (r *Runtime) path(kind, name string) string {
	group := "/api/v1"
	switch kind {
	case deployments:
		group = "/apis/apps/v1"
	case templates:
		group = "/apis/resource.k8s.io/v1"
	case leases:
		group = "/apis/coordination.k8s.io/v1"
	}
	at := group + "/namespaces/" + url.PathEscape(r.namespace) + "/" + kind
	if name != "" {
		at += "/" + url.PathEscape(name)
	}
	return at
}

// list returns the objects of a kind that have a label: "name" or "name=value".
func list[T any](ctx context.Context, r *Runtime, kind, label string) ([]T, error) {
	var found struct{ Items []T }
	err := r.api.call(ctx, http.MethodGet, r.path(kind, "")+"?labelSelector="+url.QueryEscape(label), nil, &found)
	return found.Items, err
}

// Nodes implements runtime.Runtime.
func (r *Runtime) Nodes(ctx context.Context) ([]runtime.Node, error) {
	r.mu.Lock()
	nodes, listed, before := r.nodes, r.listed, r.nodesAt
	r.mu.Unlock()
	at, seen, path := time.Now(), r.api.watched.markOf(allNodes), nodesPath
	if age := at.Sub(listed); seen != 0 && seen == before && age < listAgain || age < nodesEvery {
		return slices.Clone(nodes), nil
	}
	var found struct{ Items []node }
	if seen == 0 { // each nodesEvery: from the API server's memory, whose answer may lack the last changes
		path += "?resourceVersion=0"
	}
	if err := r.api.call(ctx, http.MethodGet, path, nil, &found); err != nil {
		return nil, err
	}
	nodes = nodesOf(found.Items)
	r.mu.Lock()
	r.nodes, r.listed, r.nodesAt = nodes, at, seen
	r.mu.Unlock()
	return slices.Clone(nodes), nil
}

// listing is what weir-edge has in the namespace, listed since at, which was the time began.
type listing struct {
	at          mark
	began       time.Time
	records     []configMap
	deployments []deployment
	pods        []pod
	services    []kubeService
}

// Look implements runtime.Runtime.
func (r *Runtime) Look(ctx context.Context) (runtime.State, error) {
	if err := r.api.checkLease(); err != nil {
		return runtime.State{}, err
	}
	seen, err := r.list(ctx)
	if err != nil {
		return runtime.State{}, err
	}
	state := stateOf(seen.records, seen.deployments, seen.pods, r.namespace)
	r.noteLost(state.Services, seen.services, time.Now())
	return state, nil
}

// list lists what has changed since the last listing.
func (r *Runtime) list(ctx context.Context) (seen listing, err error) {
	r.mu.Lock()
	last := r.last
	r.mu.Unlock()
	seen.at, seen.began = r.api.watched.markOf(configMaps, deployments, pods, services), time.Now()
	if seen.at != 0 && seen.at == last.at && seen.began.Sub(last.began) < listAgain {
		return last, nil
	}
	if seen.records, err = list[configMap](ctx, r, configMaps, selectors[configMaps]); err != nil {
		return seen, err
	}
	if seen.deployments, err = list[deployment](ctx, r, deployments, selectors[deployments]); err != nil {
		return seen, err
	}
	if seen.pods, err = list[pod](ctx, r, pods, selectors[pods]); err != nil {
		return seen, err
	}
	if seen.services, err = list[kubeService](ctx, r, services, selectors[services]); err != nil {
		return seen, err
	}
	r.mu.Lock()
	r.last = seen
	r.mu.Unlock()
	return seen, nil
}

// noteLost marks a service as lost when its Service has differed from the planned one for [lostAfter].
func (r *Runtime) noteLost(deployed []runtime.Service, served []kubeService, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.unlike
	r.unlike = map[string]time.Time{}
	for i := range deployed {
		s := &deployed[i]
		if isServed(s, served) {
			continue
		}
		since, is := before[s.Name]
		if !is {
			since = now
		}
		r.unlike[s.Name] = since
		s.Lost = now.Sub(since) >= lostAfter
	}
}

// isServed reports whether the Service of a listed service is as [planService] has it, or as absent.
func isServed(listed *runtime.Service, served []kubeService) bool {
	parsed, err := spec.Parse([]byte(listed.Document))
	if err != nil {
		return true // the service is reported as broken
	}
	i := slices.IndexFunc(served, func(s kubeService) bool {
		return s.Metadata.isOwn(listed.Name, roleService) && s.Metadata.Name == serviceName(listed.Name)
	})
	if i < 0 || len(parsed.Ports) == 0 {
		return i < 0 && len(parsed.Ports) == 0
	}
	var wanted []servicePort
	for _, p := range parsed.Ports {
		wanted = append(wanted, servicePort{p.Host, portName(p.Host)})
	}
	is := &served[i].Spec
	return slices.Equal(is.Ports, wanted) && maps.Equal(is.Selector, labelsOf(listed.Name, runtime.RoleInstance))
}

type (
	kubeService struct {
		Metadata metadata
		Spec     serviceSpec
	}
	serviceSpec struct {
		Selector map[string]string
		Ports    []servicePort
	}
	servicePort struct {
		Port       uint16
		TargetPort any // a number, or a name
	}
)

// Fetch implements runtime.Runtime: kubelets get images when pods start. While the registry does not say which one the name
// stands for it stays the one that the service has, and of a service that has another image, the one that another service has.
func (r *Runtime) Fetch(ctx context.Context, service, image string) (runtime.Image, error) {
	pinned, err := pin(ctx, image)
	if err == nil {
		return runtime.Image{Pinned: pinned}, nil
	}
	seen, lookErr := r.Look(ctx)
	if lookErr != nil {
		return runtime.Image{}, lookErr
	}
	as := ""
	for i := range seen.Services {
		s := &seen.Services[i]
		if parsed, err := spec.Parse([]byte(s.Document)); err != nil || parsed.Image != image {
			continue
		}
		if s.Name == service {
			pinned, as = s.Pinned, "as before"
			break
		}
		if pinned == "" && s.Pinned != image {
			pinned, as = s.Pinned, "as those of "+s.Name
		}
	}
	if pinned == "" || pinned == image {
		return runtime.Image{Pinned: image, Note: fmt.Sprintf("pods run what %s stands for when they start, which may differ: %v", image, err)}, nil
	}
	return runtime.Image{Pinned: pinned, Note: fmt.Sprintf("pods run %s, %s: %v", pinned, as, err)}, nil
}

// errForeignObject: weir-edge has not made the object of that name, or for another service.
var errForeignObject = errors.New("remove it, or give the service another name")

// foreignObject returns the error of a name that another object has.
func (r *Runtime) foreignObject(kind, service string, is *metadata) error {
	if other := is.Labels[runtime.LabelService]; other != "" && other != service && is.Labels[runtime.LabelRole] != "" {
		return fmt.Errorf("%s/%s in namespace %s belongs to the service %s (names in Kubernetes have neither capitals nor underscores): %w", kind, is.Name, r.namespace, other, errForeignObject)
	}
	return fmt.Errorf("%s/%s is there in namespace %s, and weir-edge has not made it: %w", kind, is.Name, r.namespace, errForeignObject)
}

// create creates an object for a service unless it is there. Errors: ErrExists if it is there, and another one
// if others have made it.
func (r *Runtime) create(ctx context.Context, kind, service, role, name string, made fields) error {
	err := r.api.call(ctx, http.MethodPost, r.path(kind, ""), made, nil)
	if !isCode(err, http.StatusConflict) {
		return err
	}
	there, err := r.find(ctx, kind, service, role, name)
	if err == nil && there == nil { // it has ended meanwhile
		err = r.api.call(ctx, http.MethodPost, r.path(kind, ""), made, nil)
	} else if err == nil {
		err = runtime.ErrExists
	}
	return err
}

// object is what an object of any kind has.
type object struct {
	configMap                 // of other kinds the metadata alone
	Spec      json.RawMessage // empty of a ConfigMap
}

// find returns an object of a service; nil if it is not there. Errors: others have made it.
func (r *Runtime) find(ctx context.Context, kind, service, role, name string) (*object, error) {
	var there object
	err := r.api.call(ctx, http.MethodGet, r.path(kind, name), nil, &there)
	switch {
	case isCode(err, http.StatusNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	case !there.Metadata.isOwn(service, role):
		return nil, r.foreignObject(kind, service, &there.Metadata)
	}
	return &there, nil
}

// remove deletes an object, if it is there. What it owns follows.
func (r *Runtime) remove(ctx context.Context, kind, name string) error {
	err := r.api.call(ctx, http.MethodDelete, r.path(kind, name)+"?propagationPolicy=Background", nil, nil)
	if isCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// Deploy implements runtime.Runtime.
func (r *Runtime) Deploy(ctx context.Context, s runtime.Service) error {
	if err := cannotRun(&s); err != nil {
		return err
	}
	// Before anything is made: the names that it takes. The first instance is the one that is there soon.
	if _, err := r.find(ctx, deployments, s.Name, runtime.RoleInstance, instanceName(engine.InstanceID(s.Name, 1))); err != nil {
		return fmt.Errorf("deploy %s: %w", s.Name, err)
	}
	if len(s.Ports) > 0 {
		if _, err := r.find(ctx, services, s.Name, roleService, serviceName(s.Name)); err != nil {
			return fmt.Errorf("deploy %s: %w", s.Name, err)
		}
	}
	record, err := planRecord(&s)
	if err == nil && !s.Lost {
		err = r.create(ctx, configMaps, s.Name, roleRecord, recordName(s.Name), record)
	}
	if err == nil {
		err = r.applyService(ctx, &s)
	}
	if errors.Is(err, runtime.ErrExists) {
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrExists)
	} else if err != nil {
		return fmt.Errorf("deploy %s: %w", s.Name, err)
	}
	return nil
}

// ownerOf returns the ConfigMap of a service. Errors: ErrUnknown.
func (r *Runtime) ownerOf(ctx context.Context, service string) (owner, *configMap, error) {
	record, err := r.find(ctx, configMaps, service, roleRecord, recordName(service))
	if err == nil && record == nil {
		err = fmt.Errorf("service %s %w", service, runtime.ErrUnknown)
	}
	if err != nil {
		return owner{}, nil, err
	}
	return owner{record.Metadata.Name, record.Metadata.UID}, &record.configMap, nil
}

// applyService makes the Service of a service what it should be.
func (r *Runtime) applyService(ctx context.Context, s *runtime.Service) error {
	of, _, err := r.ownerOf(ctx, s.Name)
	if err != nil {
		return err
	}
	name := serviceName(s.Name)
	wanted := planService(s, of)
	there, err := r.find(ctx, services, s.Name, roleService, name)
	switch {
	case wanted == nil && there == nil && err == nil:
		return nil
	case wanted == nil && errors.Is(err, errForeignObject): // it is not in the way
		return nil
	case err != nil:
		return err
	case wanted == nil:
		return r.remove(ctx, services, name)
	case there == nil:
		err = r.create(ctx, services, s.Name, roleService, name, wanted)
		if errors.Is(err, runtime.ErrExists) { // another weir-edge was faster
			err = nil
		}
		return err
	}
	var is serviceSpec
	if err := json.Unmarshal(there.Spec, &is); err != nil {
		return fmt.Errorf("read the Service %s: %w", name, err)
	}
	selector := fields{}
	for key := range is.Selector {
		selector[key] = nil // a merge patch removes what is null
	}
	for key, value := range labelsOf(s.Name, runtime.RoleInstance) {
		selector[key] = value
	}
	wanted["spec"].(fields)["selector"] = selector
	return r.api.call(ctx, http.MethodPatch, r.path(services, name), wanted, nil)
}

// Update implements runtime.Runtime.
func (r *Runtime) Update(ctx context.Context, was, s runtime.Service) error {
	if err := cannotRun(&s); err != nil {
		return err
	}
	_, there, err := r.ownerOf(ctx, s.Name)
	if err != nil {
		return err
	}
	now := stateOf([]configMap{*there}, nil, nil, r.namespace).Services
	if len(now) == 0 || !now[0].Is(&was) {
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrChanged)
	}
	record, err := planRecord(&s)
	if err == nil {
		record["metadata"].(fields)["resourceVersion"] = there.Metadata.ResourceVersion
		err = r.api.call(ctx, http.MethodPatch, r.path(configMaps, recordName(s.Name)), record, nil)
	}
	if isCode(err, http.StatusConflict) {
		return fmt.Errorf("service %s %w", s.Name, runtime.ErrChanged)
	}
	if err == nil {
		err = r.applyService(ctx, &s)
	}
	if err != nil {
		return fmt.Errorf("update %s: %w", s.Name, err)
	}
	_ = r.removeTemplates(ctx, s.Name) // what stays goes when an instance stops
	return nil
}

// Remove implements runtime.Runtime. Kubernetes gives all pods time to end. What only has the service's labels
// stays: kubectl expose copies the labels of a Deployment.
func (r *Runtime) Remove(ctx context.Context, service string, _ bool) error {
	of, _, err := r.ownerOf(ctx, service)
	if err != nil {
		return fmt.Errorf("remove %s: %w", service, err)
	}
	var errs []error
	for _, made := range []struct{ kind, role string }{{deployments, runtime.RoleInstance}, {services, roleService}, {templates, roleTemplate}} {
		there, err := list[deployment](ctx, r, made.kind, runtime.LabelService+"="+service)
		if isCode(err, http.StatusNotFound) {
			continue // a cluster without claims
		}
		errs = append(errs, err)
		for _, o := range there {
			if o.Metadata.isOwn(service, made.role) && of.owns(&o.Metadata) {
				errs = append(errs, r.remove(ctx, made.kind, o.Metadata.Name))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove %s: %w", service, err)
	}
	if err := r.remove(ctx, configMaps, of.name); err != nil { // the owner last
		return fmt.Errorf("remove %s: %w", service, err)
	}
	return nil
}

// owns reports whether an object was made for the service of the ConfigMap.
func (o owner) owns(m *metadata) bool {
	return slices.ContainsFunc(m.OwnerReferences, func(of struct{ Name, UID string }) bool { return of.UID == o.uid })
}

// ensureClaimTemplate returns the template by which pods of a service claim their minimum, and makes it; empty where
// there is no minimum, or the cluster has no class for it.
func (r *Runtime) ensureClaimTemplate(ctx context.Context, s *runtime.Service, of owner) (string, error) {
	minimum := minimumsOf(s)
	if minimum == (minimums{}) {
		return "", nil
	}
	err := r.api.call(ctx, http.MethodGet, "/apis/resource.k8s.io/v1/deviceclasses/"+deviceClass, nil, nil)
	if isCode(err, http.StatusNotFound) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	name := minimum.templateName(s.Name)
	err = r.create(ctx, templates, s.Name, roleTemplate, name, planTemplate(s.Name, minimum, of))
	if errors.Is(err, runtime.ErrExists) {
		err = nil
	}
	return name, err
}

// Start implements runtime.Runtime.
func (r *Runtime) Start(ctx context.Context, s runtime.Service, instance, node string) error {
	of, _, err := r.ownerOf(ctx, s.Name)
	template := ""
	if err == nil {
		template, err = r.ensureClaimTemplate(ctx, &s, of)
	}
	if err == nil {
		err = r.create(ctx, deployments, s.Name, runtime.RoleInstance, instanceName(instance), planInstance(&s, instance, node, template, of))
	}
	if err != nil {
		return fmt.Errorf("start instance %s: %w", instance, err)
	}
	return nil
}

// Restart implements runtime.Runtime: kubelets restart all that ends.
func (r *Runtime) Restart(context.Context, string) error { return nil }

// claimant is a Deployment with the template of its pods' claims.
type claimant struct {
	Spec struct {
		Template struct {
			Spec struct {
				ResourceClaims []struct{ ResourceClaimTemplateName string }
			}
		}
	}
}

// removeTemplates deletes templates of a service's former minimums that no instance has any more, unless the service may go back to them.
func (r *Runtime) removeTemplates(ctx context.Context, service string) error {
	of, record, err := r.ownerOf(ctx, service)
	if errors.Is(err, runtime.ErrUnknown) {
		return nil // they go with it
	} else if err != nil {
		return err
	}
	there, err := list[deployment](ctx, r, templates, runtime.LabelService+"="+service)
	if isCode(err, http.StatusNotFound) {
		return nil // a cluster without claims
	} else if err != nil {
		return err
	}
	used, err := usedTemplates(record, service)
	if err != nil {
		return nil // the service is reported as broken
	}
	instances, err := list[claimant](ctx, r, deployments, runtime.LabelService+"="+service)
	if err != nil {
		return err
	}
	for _, i := range instances {
		for _, claim := range i.Spec.Template.Spec.ResourceClaims {
			used[claim.ResourceClaimTemplateName] = true
		}
	}
	for _, t := range there {
		if m := &t.Metadata; !used[m.Name] && m.isOwn(service, roleTemplate) && of.owns(m) {
			err = errors.Join(err, r.remove(ctx, templates, m.Name))
		}
	}
	return err
}

// usedTemplates returns the names of the templates by which instances of a service may start: of its version, and
// of the one that it may go back to.
func usedTemplates(record *configMap, service string) (map[string]bool, error) {
	used := map[string]bool{}
	documents := []string{record.Data[keyDocument]}
	var update runtime.Update
	if err := json.Unmarshal([]byte(record.Data[keyUpdate]), &update); err == nil && update.Before != nil {
		documents = append(documents, update.Before.Document)
	}
	for _, document := range documents {
		parsed, err := spec.Parse([]byte(document))
		if err != nil {
			return nil, err
		}
		used[minimumsOf(&runtime.Service{Labels: parsed.Labels}).templateName(service)] = true
	}
	return used, nil
}

// Stop implements runtime.Runtime.
func (r *Runtime) Stop(ctx context.Context, instance string) error {
	there, err := list[deployment](ctx, r, deployments, runtime.LabelInstance+"="+instance)
	for _, d := range there {
		if d.Metadata.Labels[runtime.LabelRole] == runtime.RoleInstance && d.Metadata.Name == instanceName(instance) {
			err = errors.Join(err, r.remove(ctx, deployments, d.Metadata.Name))
			err = errors.Join(err, r.removeTemplates(ctx, d.Metadata.Labels[runtime.LabelService]))
		}
	}
	if err != nil {
		return fmt.Errorf("stop instance %s: %w", instance, err)
	}
	return nil
}

// Proxies implements runtime.Runtime: there are none, as Kubernetes sends users to instances.
func (r *Runtime) Proxies(context.Context, string) ([]runtime.Proxy, error) { return nil, nil }

// Control implements runtime.Runtime: there are no proxies.
func (r *Runtime) Control() string { return "" }

// returnTime is within how long a weir-edge that runs makes the lease again after it was removed: it renews it each 2 s,
// and notices at one renewal that the lease is gone.
const returnTime = 5 * time.Second

// holderAfterDown returns the weir-edge that has made the lease again after it was removed; empty if none has in time.
func (r *Runtime) holderAfterDown(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, returnTime)
	defer cancel()
	for {
		var held struct {
			Spec struct{ HolderIdentity string }
		}
		err := r.api.call(ctx, http.MethodGet, r.path(leases, leaseName), nil, &held)
		switch {
		case ctx.Err() == context.DeadlineExceeded:
			return "", nil
		case err != nil && !isCode(err, http.StatusNotFound):
			return "", err
		case held.Spec.HolderIdentity != "":
			return held.Spec.HolderIdentity, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// Down implements runtime.Runtime: it removes the ledger and the lease. It returns an error if another weir-edge manages
// the namespace after that.
func (r *Runtime) Down(ctx context.Context) error {
	there, err := r.find(ctx, configMaps, "", runtime.RoleLedger, ledgerName)
	if err == nil && there != nil {
		err = r.remove(ctx, configMaps, ledgerName)
	}
	if err == nil {
		err = r.remove(ctx, leases, leaseName)
	}
	holder := ""
	if err == nil {
		holder, err = r.holderAfterDown(ctx)
	}
	if err != nil {
		return fmt.Errorf("remove what weir-edge keeps in Kubernetes: %w", err)
	}
	if holder != "" {
		return fmt.Errorf("%s still manages the namespace %s: stop that weir-edge, then run weir-edge down again", holder, r.namespace)
	}
	return nil
}

// ledger is a ConfigMap, whose resource version is the token. It implements engine.Ledger.
type ledger struct{ r *Runtime }

const (
	ledgerName  = "edge-ledger"
	keyPromises = "promises"
)

// Ledger implements runtime.Runtime.
func (r *Runtime) Ledger() engine.Ledger { return ledger{r} }

// Read implements engine.Ledger. A ledger that is not there has no token, and is made by Swap.
func (l ledger) Read(ctx context.Context) (engine.Promises, engine.Token, error) {
	there, err := l.r.find(ctx, configMaps, "", runtime.RoleLedger, ledgerName)
	if err != nil || there == nil {
		return engine.Promises{}, "", err
	}
	promises := engine.Promises{}
	if err := json.Unmarshal([]byte(there.Data[keyPromises]), &promises); err != nil {
		return nil, "", fmt.Errorf("read what is promised from configmaps/%s: %w: remove it to have it written anew", ledgerName, err)
	}
	return promises, engine.Token(there.Metadata.ResourceVersion), nil
}

// Swap implements engine.Ledger.
func (l ledger) Swap(ctx context.Context, token engine.Token, promises engine.Promises) error {
	text, err := json.Marshal(promises)
	if err != nil {
		return fmt.Errorf("write what is promised: %w", err)
	}
	about := fields{"name": ledgerName, "labels": labelsOf("", runtime.RoleLedger)}
	method, path := http.MethodPost, l.r.path(configMaps, "")
	if token != "" {
		about["resourceVersion"] = string(token)
		method, path = http.MethodPut, l.r.path(configMaps, ledgerName)
	}
	err = l.r.api.call(ctx, method, path, fields{"metadata": about, "data": fields{keyPromises: string(text)}}, nil)
	if isCode(err, http.StatusConflict) || token != "" && isCode(err, http.StatusNotFound) {
		return engine.ErrConflict
	} else if err != nil {
		return fmt.Errorf("write what is promised: %w", err)
	}
	return nil
}
