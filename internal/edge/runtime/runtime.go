// Package runtime is PiCasso's Service Execution (section III.A) as weir-edge sees
// it: where containers run, behind an interface that is small enough for one engine
// (docker) and for many (swarm, kubernetes).
//
// What should run lives in the engine, as labels, and nowhere else: another weir-edge finds
// the same there. So a service exists from Deploy to Remove, and an instance from Start to
// Stop.
//
// Two weir-edge may act at once. What they promise to instances is in a ledger that lives
// there as well, and changes by compare and swap, as the version of a service does.
package runtime

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"reflect"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/edge/engine"
	"github.com/weir-project/weir/internal/edge/proxy"
	"github.com/weir-project/weir/internal/edge/spec"
)

// Labels of containers that weir-edge has made, and of nothing else.
const (
	LabelService  = proxy.LabelService
	LabelRole     = v1.LabelEdgeRole
	LabelDocument = "weir-edge.specification" // of the proxy
	LabelInstance = "weir-edge.instance"      // the ID of an instance
	LabelNode     = "weir-edge.node"          // the ID of the node that it is bound to
	LabelImage    = "weir-edge.image"         // an instance's, as the specification names it
	LabelPinned   = "weir-edge.pinned-image"  // of the proxy: Service.Pinned
	LabelProject  = "weir-edge.project"       // of what a Compose file has made: its project
	LabelMade     = "weir-edge.made-of"       // an instance's: Service.Made
	LabelUpdate   = "weir-edge.update"        // of the proxy: Service.Update, as JSON
	LabelManage   = "weir-edge.manage"        // "true": of a Swarm service of the owner's own; see Managed

	RoleInstance = "instance"
	RoleProxy    = v1.EdgeProxy
	RoleLedger   = "ledger"
)

// Errors of a runtime, wrapped with what they are about.
var (
	ErrExists       = errors.New("is there already")
	ErrNoImage      = errors.New("the image is not there")
	ErrArchitecture = errors.New("the image is for another architecture")
	ErrUnknown      = errors.New("is not deployed; weir-edge ps lists what is")
	ErrMissing      = errors.New("is not there")
	ErrChanged      = errors.New("was changed by another weir-edge meanwhile: look at it, and try again")
)

// Runtime runs containers on one node or on many.
type Runtime interface {
	// Kind is "docker", "swarm" or "kubernetes".
	Kind() string
	Nodes(context.Context) ([]Node, error)
	// Look returns all that weir-edge has there, as one consistent listing.
	Look(context.Context) (State, error)
	// Fetch gets the image of a service unless it is there. Errors: ErrNoImage, ErrArchitecture.
	Fetch(ctx context.Context, service, image string) (Image, error)
	// Deploy makes a service, with its proxy and without instances, and pins its image.
	// Errors: ErrExists.
	Deploy(context.Context, Service) error
	// Update gives a service that is there as was another version, as far as it differs: its proxy starts
	// anew if that has other ports or labels. Instances are left as they are. Errors: ErrUnknown, ErrChanged.
	Update(ctx context.Context, was, is Service) error
	// Remove ends a service, its instances included. With leave it may leave instances of a Compose
	// file, which want time to end, to Stop.
	Remove(ctx context.Context, service string, leave bool) error
	// Start makes an instance with that ID run on a node. Errors: ErrExists.
	Start(ctx context.Context, service Service, instance, node string) error
	// Restart starts an instance in its place that has ended and [Instance.Stays] so.
	Restart(ctx context.Context, instance string) error
	// Stop ends an instance. One that is not there is no error.
	Stop(ctx context.Context, instance string) error
	// Ledger is where all who manage these nodes keep what they promise.
	Ledger() engine.Ledger
	// Proxies are a service's proxies, one on each node that answers.
	Proxies(ctx context.Context, service string) ([]Proxy, error)
	// Control is where HAProxy takes commands, as its option "stats socket" says it.
	Control() string
	// Changes sends something whenever a container of weir-edge starts or ends, until
	// ctx ends.
	Changes(context.Context) <-chan struct{}
	// Down removes what weir-edge keeps there itself, when no service is left.
	Down(context.Context) error
	Close() error
}

// Node is a machine that runs containers.
type Node struct {
	ID, Name string
	// Address is where other nodes reach it; invalid on a single one.
	Address netip.Addr
	// Ready is what the engine thinks of it.
	Ready bool
	// Reason is why it is not.
	Reason string
	// Here: the engine that weir-edge speaks to is this node's.
	Here bool
	// Draining: its operator wants no instances there.
	Draining     bool
	CPUs         int
	MemoryBytes  uint64
	Architecture string
}

// Image is one that is there.
type Image struct {
	// SizeBytes is what was transferred or, if that is unknown, what it takes unpacked.
	SizeBytes uint64
	// Took is how long it was fetched; 0 if it was there.
	Took time.Duration
	// Note is what the user should know of it; usually empty.
	Note string
	// Pinned names the image as it is now; see [Service.Pinned].
	Pinned string
}

// Service is what is to run.
type Service struct {
	Name string
	// Document is what the user wrote, from which all else is.
	Document string
	Image    string
	// Pinned names the image that Image was when the service was deployed, by digest or ID; empty
	// before.
	Pinned string
	// Made is the Fingerprint of the version, which new instances have as a label.
	Made string
	// Update is what is kept of the last time that the service was deployed again.
	Update Update
	// Lost: another program has removed the service's container, or has removed or changed its Service of
	// Kubernetes. Deploy makes it again.
	Lost   bool
	Ports  []Port
	Labels map[string]string
	// Limits of each instance; 0: none.
	MemoryBytes uint64
	CPUs        float64
	Proxy       proxy.Config
	// Apart is of the instance that Start makes: its node must have no other one of the service. It is for
	// runtimes that may choose another node.
	Apart bool
	// Container is what instances have beside that; it may be nil.
	Container *spec.Container
	// Files are the contents of new files of the container, by digest.
	Files map[string][]byte
}

// Update is what is kept of the last update of a service.
type Update struct {
	// Before is the version to go back to while it is not known whether the present one answers; nil:
	// none.
	Before *Version `json:"before,omitempty"`
	// Left is the fingerprint of a version that did not answer, so that the service went back; Reason
	// says how it failed.
	Left   string `json:"left,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Version is what a service was.
type Version struct {
	Document string `json:"document"`
	Pinned   string `json:"pinned"`
}

// ImageToRun returns the name by which instances run the image.
func (s *Service) ImageToRun() string { return cmp.Or(s.Pinned, s.Image) }

// Is reports whether a listed service is still what it was when it was listed before.
func (s *Service) Is(was *Service) bool {
	return s.Document == was.Document && s.Pinned == was.Pinned && reflect.DeepEqual(s.Update, was.Update)
}

// Port is a published port: of the host, and of the container behind it.
type Port struct{ Host, Container uint16 }

// State is all services and instances.
type State struct {
	// Services have the name, the document, the pinned image and the last update only, and may be lost.
	Services  []Service
	Instances []Instance
	// Managed are the Swarm services of others that weir-edge may move, or has bound to a node.
	Managed []Managed
	// Odd is what weir-edge has there and cannot read, in words.
	Odd []string
}

// Managed is a Swarm service of others, which weir-edge neither starts nor stops.
type Managed struct {
	// Spec has its name, its image, the labels of its containers, and what keeps it on a node.
	Spec spec.Spec
	// Wanted: its users want weir-edge to move it. Stays says why that is not possible; empty if it is.
	Wanted bool
	Stays  string
	// Bound is the node that weir-edge has bound it to, by its ID if it has left; empty if it has not. Returns:
	// that is being taken back, and takes another Bind to "".
	Bound   string
	Returns bool
	// Node is where its task runs, empty while none does. Waits is why its newest task does not run, if
	// the swarm has tried.
	Node, ContainerID string
	Waits             string
	// Bind has its task run on a node; "" takes that back, and the task stays where it is. Errors:
	// ErrChanged.
	Bind func(ctx context.Context, node string) error
}

// Phase is how far an instance is.
type Phase string

// The phases. Whether one that runs also answers, its proxy knows.
const (
	Starting Phase = "starting"
	Running  Phase = "running"
	// Ended is one that has ended, or could not be started, and may be started again.
	Ended Phase = "ended"
)

// Health is what a health check says.
type Health string

// The states of a health check.
const (
	HealthStarting  Health = "starting"
	HealthGood      Health = "healthy"
	HealthUnhealthy Health = "unhealthy"
	// HealthServed: it answers, and gets users from the engine itself, which has no proxies.
	HealthServed Health = "served"
)

// Instance is a running copy of a service.
type Instance struct {
	// ID is what weir-edge calls it, ContainerID what the node's engine does, if it
	// is known.
	ID, ContainerID, Service, Node, Image string
	// Made is the [Service.Made] that it was started with; empty if an older weir-edge has started it.
	Made  string
	Phase Phase
	// Run names the present run of its program: a restart begins another one. Empty before the
	// first.
	Run string
	// Health is what the engine's health check says; empty without one, and where the phase has it.
	Health Health
	// Reason is why it ended, or what it waits for before it runs.
	Reason string
	// Waits: it does not start yet, as it has no node or its image is being fetched. Its engine goes on with that,
	// however long it takes.
	Waits bool
	// Stays: it has ended, and its engine does not start it again.
	Stays bool
	// Addresses are where it answers, by the container's port.
	Addresses map[uint16]netip.AddrPort
	StartedAt time.Time
}

// Proxy is a service's proxy on one node.
type Proxy struct {
	Node    string
	Control proxy.Control
	// Save keeps a configuration to start from; nil where that is the engine's.
	Save func(file string) error
	// Restart starts a proxy that has ended and that its engine does not start again; nil for others.
	Restart func(context.Context) error
}
