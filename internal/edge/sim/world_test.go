package sim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/edge/engine"
)

// A cluster that exists only as numbers for the tests of this package: nodes, instances and crowds of
// users, which the engine manages as it does real ones. It answers what would happen
// (when a crowd comes, a node dies, measurements are noisy) in as little time as
// the engine needs to decide, and on a thousand nodes.
//
// Method.
//
// Users are clients as PiCasso's ab is: each sends a request, waits for the answer,
// thinks for a while and sends the next. They are spread over the instances that run,
// as a proxy does. A request keeps one processor busy for some time; on a node that is
// used to the part u, of C processors, it takes
//
//	R = c * (1 + u^(sqrt(2(C+1))-1) / (C * (1-u)))
//
// (Sakasegawa's approximation of M/M/C, 1977), where u follows from how often users ask, who
// wait for R. That is another formula than the one the engine estimates by. What an instance
// is asked beyond maxUsers waits for its turn.
//
// Limits.
//
// The network has a delay and no queues. Nothing fails but what is told to.

// Node is a simulated node: what the engine is told of it, but for what is used.
type Node struct {
	engine.Node
	// OtherCPUs are processors that something else keeps busy there.
	OtherCPUs float64
	// Refuses: its agent grants no minimums.
	Refuses bool
	// Dead: it does not answer, and nothing runs there.
	Dead bool
	// Unreachable: it does not answer, and what is there runs on and serves its users.
	Unreachable bool
	// Link is the one between it and users, which nodes may share; empty if no switch tells of it.
	Link string
}

// Load is what a request of a service costs, and what its users do.
type Load struct {
	CPUSeconds   float64 // of one request, on one processor
	AnswerBytes  float64
	ThinkSeconds float64 // between an answer and the next request
}

// Crowd is users of one service who come to one node.
type Crowd struct {
	Service, Node string
	// Users are how many there are, so many seconds after the beginning.
	Users func(seconds float64) float64
}

// World is a simulated cluster.
type World struct {
	Nodes    []Node
	Services []engine.Service
	Loads    map[string]Load // by service
	Crowds   []Crowd
	Links    []engine.Link
	Claims   []engine.Claim
	// LinkBPS is what links can promise.
	LinkBPS map[string]uint64
	// Bad is the version of which instances never answer.
	Bad string
	// CrashSeconds is how long after their first answer instances crash; 0: not.
	CrashSeconds float64
	// Noise is by how much measurements are off, as a part of them: 0.1 is up to 10 %.
	Noise float64
	// Start is when it begins.
	Start time.Time

	random    *rand.Rand
	seconds   float64
	instances []*instance
	responses map[string]float64 // what users of a service wait, without noise
}

type instance struct {
	engine.Instance
	readyAt, goneAt float64 // seconds; 0: not
}

// Crash makes the first running instance of a service fail.
func (w *World) Crash(service string) {
	for _, i := range w.instances {
		if i.Service == service && i.State == engine.InstanceRunning {
			i.State, i.Since, i.Reason = engine.InstanceFailed, w.at(), "it ended"
			return
		}
	}
}

// Deploy gives a service another version.
func (w *World) Deploy(service, version string) {
	s := w.service(service)
	s.Versions = engine.Versions{Wanted: version, Before: s.Versions.Wanted}
}

// Versions is how many instances of a service answer, by version.
func (w *World) Versions(service string) map[string]int {
	count := map[string]int{}
	for _, i := range w.instances {
		if i.Service == service && i.State == engine.InstanceRunning && !w.node(i.Node).Dead {
			count[i.Version]++
		}
	}
	return count
}

// Promises is what the ledger holds for the instances.
func (w *World) Promises() engine.Promises {
	promises := engine.Promises{}
	for _, i := range w.instances {
		if i.State != engine.InstanceFailed {
			promises[i.ID] = engine.Promise{Service: i.Service, Node: i.Node, Replaces: i.Replaces, Stopping: i.State == engine.InstanceStopping}
		}
	}
	return promises
}

// Starting are the instances that do not answer yet.
func (w *World) Starting() map[string]bool {
	starting := map[string]bool{}
	for _, i := range w.instances {
		starting[i.ID] = i.State == engine.InstanceStarting
	}
	return starting
}

// Paths is how many users come by each path: as they are expected or, sampled, as a proxy finds
// them at one moment.
func (w *World) Paths(sampled bool) map[engine.Path]float64 {
	paths := map[engine.Path]float64{}
	for _, c := range w.Crowds {
		var running []string
		for _, i := range w.instances {
			if i.Service == c.Service && i.State == engine.InstanceRunning && !w.node(i.Node).Dead {
				running = append(running, i.ID)
			}
		}
		for _, id := range running {
			users := max(c.Users(w.seconds), 0) / float64(len(running))
			if sampled {
				users = max(math.Round(users+math.Sqrt(users)*w.random.NormFloat64()), 0)
			}
			paths[engine.Path{Instance: id, Node: c.Node}] += users
		}
	}
	return paths
}

// Seed makes the noise repeatable.
func (w *World) Seed(seed uint64) { w.random = rand.New(rand.NewPCG(seed, seed)) }

// Seconds is how long ago the world began.
func (w *World) Seconds() float64 { return w.seconds }

// ResponseSeconds is what users of a service wait, without noise.
func (w *World) ResponseSeconds(service string) float64 { return w.responses[service] }

// Running is how many instances of a service answer, by node.
func (w *World) Running(service string) map[string]int {
	count := map[string]int{}
	for _, i := range w.instances {
		if i.Service == service && i.State == engine.InstanceRunning && !w.node(i.Node).Dead {
			count[i.Node]++
		}
	}
	return count
}

// Put adds an instance that runs already.
func (w *World) Put(i engine.Instance) {
	i.State, i.Since = engine.InstanceRunning, w.Start
	w.instances = append(w.instances, &instance{Instance: i})
}

func (w *World) node(name string) *Node {
	at := slices.IndexFunc(w.Nodes, func(n Node) bool { return n.Name == name })
	return &w.Nodes[at]
}

func (w *World) service(name string) *engine.Service {
	at := slices.IndexFunc(w.Services, func(s engine.Service) bool { return s.Spec.Name == name })
	if at < 0 {
		return nil
	}
	return &w.Services[at]
}

// Apply does what was decided. Who starts takes the time of the image and of the start.
func (w *World) Apply(decisions []engine.Decision) {
	for _, d := range decisions {
		switch d.Action {
		case engine.GoBack:
			w.service(d.Service).Versions = engine.Versions{Wanted: d.Version}
		case engine.Settle:
			w.service(d.Service).Versions.Before = ""
		}
		if d.Instance == "" || w.node(d.Node).Dead || w.node(d.Node).Unreachable {
			continue
		}
		switch d.Action {
		case engine.Start, engine.Move:
			w.start(d)
		case engine.Stop:
			for _, i := range w.instances {
				if i.ID == d.Instance && i.Node == d.Node && i.State != engine.InstanceStopping {
					i.State, i.Since, i.goneAt = engine.InstanceStopping, w.at(), w.seconds+1
				}
			}
		}
	}
}

// notAnswering is after how many seconds an instance that does not answer has failed.
const notAnswering = 30

// unknownPullBPS is the rate at which nodes get images that do not say.
const unknownPullBPS = 100e6

func (w *World) start(d engine.Decision) {
	n, s := w.node(d.Node), w.service(d.Service)
	seconds := s.Spec.StartUpSeconds
	if !slices.Contains(n.Images, s.Spec.Image) {
		seconds += float64(s.Spec.ImageBytes) * 8 / cmp.Or(float64(n.PullBPS), unknownPullBPS)
		n.Images = append(slices.Clone(n.Images), s.Spec.Image)
	}
	w.instances = append(w.instances, &instance{
		Instance: engine.Instance{
			ID: d.Instance, Service: d.Service, Node: d.Node, State: engine.InstanceStarting, Since: w.at(),
			LimitBytes: d.LimitBytes, Replaces: d.Replaces, Version: d.Version,
		},
		readyAt: w.seconds + seconds,
	})
}

func (w *World) at() time.Time { return w.Start.Add(time.Duration(w.seconds * float64(time.Second))) }

// Step lets time pass.
func (w *World) Step(seconds float64) {
	w.seconds += seconds
	w.instances = slices.DeleteFunc(w.instances, func(i *instance) bool { return i.goneAt > 0 && i.goneAt <= w.seconds })
	for _, i := range w.instances {
		if bad := w.Bad != "" && i.Version == w.Bad; bad && i.State == engine.InstanceStarting && i.readyAt <= w.seconds && !w.node(i.Node).Dead {
			if i.readyAt+notAnswering <= w.seconds {
				i.State, i.Since, i.Reason = engine.InstanceFailed, w.at(), "it has not answered"
			}
			continue
		}
		if i.State == engine.InstanceStarting && i.readyAt <= w.seconds && !w.node(i.Node).Dead {
			i.State, i.Since = engine.InstanceRunning, w.at()
		}
		if i.State == engine.InstanceRunning && w.CrashSeconds > 0 && w.at().Sub(i.Since).Seconds() >= w.CrashSeconds {
			i.State, i.Since, i.Reason = engine.InstanceFailed, w.at(), "it ended"
		}
	}
}

// Run lets an engine manage the world for so many seconds, one round each, and calls
// each with what it went by and decided.
func (w *World) Run(e *engine.Engine, seconds int, each func(engine.Input, engine.Result)) {
	var memory engine.Memory
	for range seconds {
		in := w.Input()
		in.Memory = memory
		result := e.Round(in)
		memory = result.Memory
		w.Apply(result.Decisions)
		each(in, result)
		w.Step(1)
	}
}

// linkRoom returns what a link can still promise.
func (w *World) linkRoom(link string) uint64 {
	free := w.LinkBPS[link]
	for _, c := range w.Claims {
		if w.node(c.Node).Link == link {
			free -= min(c.LinkBPS, free)
		}
	}
	return free
}

// IsTooSlow tells whether a node's uplink is too slow for what is promised there.
func (w *World) IsTooSlow(node string) bool {
	n := w.node(node)
	promised := map[bool]uint64{false: n.Out.OtherMinBPS, true: n.In.OtherMinBPS}
	for _, c := range w.Claims {
		if c.Node == node {
			promised[false] += c.MinBPS
			promised[true] += c.InMinBPS
		}
	}
	return promised[false] > n.Out.BudgetBPS || promised[true] > n.In.BudgetBPS
}

// Input measures the world, with noise.
func (w *World) Input() engine.Input {
	in := engine.Input{At: w.at(), Services: slices.Clone(w.Services), Links: slices.Clone(w.Links), Claims: slices.Clone(w.Claims)}
	users := w.serve()
	for i := range w.Nodes {
		n := w.Nodes[i].Node
		n.State = engine.NodeReady
		if w.Nodes[i].Dead || w.Nodes[i].Unreachable {
			n.State, n.Reason = engine.NodeGone, "it does not answer"
		}
		busy, sent := w.Nodes[i].OtherCPUs, float64(n.UplinkSentBPS)
		for _, one := range users.on[n.Name] {
			busy += one.CPUs
			sent += float64(one.SentBPS)
		}
		if n.CPUs > 0 {
			n.CPUUsedPercent = min(100*w.noisy(busy)/n.CPUs, 100)
		}
		n.UplinkSentBPS = min(uint64(w.noisy(sent)), n.UplinkBPS)
		in.Nodes = append(in.Nodes, n)
		if link := w.Nodes[i].Link; link != "" {
			in.LinkRooms = append(in.LinkRooms, engine.LinkRoom{Node: n.Name, FreeBPS: w.linkRoom(link)})
		}
	}
	for _, i := range w.instances {
		seen := i.Instance
		seen.Users, seen.CPUs = math.Round(w.noisy(i.Users)), w.noisy(i.CPUs)
		seen.ResponseSeconds = w.noisy(i.ResponseSeconds)
		s := w.service(i.Service)
		hasMinimum := s != nil && engine.MinimumOf(&s.Spec) != (engine.Rates{})
		seen.MinRefused, seen.MinCut = w.node(i.Node).Refuses && hasMinimum, w.IsTooSlow(i.Node) && hasMinimum
		in.Instances = append(in.Instances, seen)
	}
	for _, c := range w.Crowds {
		present := max(c.Users(w.seconds), 0)
		response := w.responses[c.Service]
		in.Demand = append(in.Demand, engine.Demand{
			Service: c.Service, Node: c.Node, Users: math.Round(w.noisy(present)), ResponseSeconds: w.noisy(response),
		})
	}
	return in
}

func (w *World) noisy(x float64) float64 {
	if w.Noise == 0 {
		return x
	}
	return x * (1 + w.Noise*(2*w.random.Float64()-1))
}

// served are the instances of each node that serve somebody.
type served struct{ on map[string][]*instance }

// serve spreads users over instances, and works out what they wait.
func (w *World) serve() served {
	running := map[string][]*instance{}
	all := served{on: map[string][]*instance{}}
	dead := map[string]bool{}
	byName := make(map[string]*Node, len(w.Nodes))
	for i := range w.Nodes {
		dead[w.Nodes[i].Name] = w.Nodes[i].Dead
		byName[w.Nodes[i].Name] = &w.Nodes[i]
	}
	for _, i := range w.instances {
		i.Users, i.CPUs, i.SentBPS, i.ResponseSeconds = 0, 0, 0, 0
		if i.State == engine.InstanceRunning && !dead[i.Node] {
			running[i.Service] = append(running[i.Service], i)
			all.on[i.Node] = append(all.on[i.Node], i)
		}
	}
	for _, c := range w.Crowds {
		list := running[c.Service]
		for _, i := range list {
			i.Users += max(c.Users(w.seconds), 0) / float64(len(list))
		}
	}
	for name, list := range all.on {
		w.compute(byName[name], list)
	}
	w.responses = map[string]float64{}
	for service, list := range running {
		users, seconds := 0.0, 0.0
		for _, i := range list {
			users += i.Users
			seconds += i.Users * i.ResponseSeconds
		}
		if users > 0 {
			w.responses[service] = seconds / users
		}
	}
	return all
}

// compute works out what the instances of a node use and how long they take. All requests of
// a node take by the same factor longer than alone: the one at which users, who ask again once
// they have an answer, use as much of the processors as makes that factor.
func (w *World) compute(n *Node, list []*instance) {
	processors := max(n.CPUs-n.OtherCPUs, n.CPUs/20, 0.01)
	requests := func(i *instance, factor float64) float64 {
		load := w.Loads[i.Service]
		return i.Users / max(load.CPUSeconds*factor+load.ThinkSeconds, 1e-6)
	}
	waits := func(factor float64) bool { // longer than by that factor
		busy := 0.0
		for _, i := range list {
			busy += requests(i, factor) * w.Loads[i.Service].CPUSeconds
		}
		use := busy / processors
		return use >= 1 || 1+math.Pow(use, math.Sqrt(2*(processors+1))-1)/(processors*(1-use)) > factor
	}
	low, high := 1.0, 2.0
	for waits(high) {
		low, high = high, 2*high
	}
	for high-low > 1e-3*low {
		if middle := (low + high) / 2; waits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	for _, i := range list {
		load := w.Loads[i.Service]
		i.ResponseSeconds = load.CPUSeconds * high
		if s := w.service(i.Service); s != nil && s.Spec.MaxUsers > 0 {
			i.ResponseSeconds *= max(i.Users/float64(s.Spec.MaxUsers), 1)
		}
		requests := i.Users / max(i.ResponseSeconds+load.ThinkSeconds, 1e-6)
		i.CPUs = min(requests*load.CPUSeconds, processors)
		i.SentBPS = uint64(requests * load.AnswerBytes * 8)
	}
}
