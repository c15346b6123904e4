package picasso

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
)

// What competes with what, and by what it is judged: docs/measurements/edge.md, "The competition for
// uplinks". Nothing here depends on what comes out.
const (
	// shopPageBytes is the paper's page: its text, and its picture.
	shopPageBytes = smallPageBytes + 80_000
	// minPart is which part of an uplink the service's minimum is, which its first instance is promised alone and two half of each, and
	// cameraPart what the camera is promised.
	minPart    = 0.8
	cameraPart = 0.7
	// otherFlows are the connections of what makes a node busy.
	otherFlows = 8
	// SmallestCrowd is figure 3's.
	SmallestCrowd = 5
	drawSeed      = 1
)

// role is what the other container of a node does.
type role int

const (
	idle role = iota
	backup
	camera
)

// scenario is nodes, of which some are busy, and how many instances the service has.
type scenario struct {
	nodes, busy, instances int
	// camera: the first of the busy nodes has promised most of its uplink.
	camera bool
}

// halfBusy returns a scenario in which half of the nodes are busy.
func halfBusy(nodes int) scenario { return scenario{nodes, nodes / 2, nodes / 2, true} }
func allBusy(nodes int) scenario  { return scenario{nodes, nodes, nodes, false} }

func (s scenario) String() string { return fmt.Sprintf("%d nodes, %d busy", s.nodes, s.busy) }

// differ: some uplinks are busy and some are not, so it matters where instances are.
func (s scenario) differ() bool { return s.busy < s.nodes }

// roles returns the role of each node in an order. Every second order is the one before it,
// reversed.
func (s scenario) roles(order int) []role {
	nodes := rand.New(rand.NewPCG(drawSeed, uint64(s.nodes)<<32|uint64(order/2))).Perm(s.nodes)
	if order%2 == 1 {
		slices.Reverse(nodes)
	}
	roles := make([]role, s.nodes)
	for i, node := range nodes[:s.busy] {
		roles[node] = backup
		if s.camera && i == 0 {
			roles[node] = camera
		}
	}
	return roles
}

// userLoad is what users of the service do.
type userLoad struct {
	name string
	// users of a closed loop, of each instance or, if inAll, of all together.
	users int
	inAll bool
	// part of the minimum that users ask for who arrive; 0 in a closed loop.
	part float64
}

func userLoads() []userLoad {
	return []userLoad{
		{name: "5 users an instance", users: SmallestCrowd},
		{name: crowded, users: PaperCrowd, inAll: true},
		{name: "arrivals, 1/2 of the minimum", part: 0.5},
		{name: "arrivals, 3/4 of the minimum", part: 0.75},
	}
}

// crowded asks for more than minimums serve.
const crowded = "100 users"

func (l userLoad) closed() bool { return l.part == 0 }

// usersOf returns the number of users of each instance in a closed loop.
func (l userLoad) usersOf(instances int) int {
	if l.inAll {
		return max(1, l.users/instances)
	}
	return l.users
}

// arrivalsPerSecond at each instance take a part of the minimum, headers included.
func (l userLoad) arrivalsPerSecond(minBPS float64) float64 {
	return l.part * minBPS / (framesOf(shopPageBytes) * 8)
}

// segmentBytes is what a full packet carries of a page.
const segmentBytes = 1448

// framesOf returns the bytes that a page takes of a link.
func framesOf(payload int) float64 {
	return float64(payload) + math.Ceil(float64(payload)/segmentBytes)*measure.TCPHeaderBytes
}

// arrivalTimes returns the times at which users arrive: a Poisson process.
func arrivalTimes(perSecond float64, during time.Duration, seed uint64) (times []time.Duration) {
	random := rand.New(rand.NewPCG(drawSeed, seed))
	for at := 0.0; ; {
		at += random.ExpFloat64() / perSecond
		if at >= during.Seconds() {
			return times
		}
		times = append(times, time.Duration(at*float64(time.Second)))
	}
}
