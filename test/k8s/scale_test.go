//go:build cluster

package k8s

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/test/must"
)

const (
	nodes = 500
	// samples are the nodes that two schedulers fill; one of them is gateway, which has an agent.
	samples = 10
	// defaultClaims is how many claims of bandwidth there are unless WEIR_CLAIMS says how many: a minute's.
	defaultClaims = 2000
	// rounds are the batches of each kind whose rates are compared.
	rounds = 4
	// meanMbit is the mean of what claims ask, 1 to 7 Mbit/s.
	meanMbit = 4
	// leastShare is how much of the rate with claims that need no counting is to be left.
	leastShare = 0.8
	second     = "second-scheduler"
)

// fleet is a cluster of many nodes whose slices weir-dra publishes.
type fleet struct {
	*cluster
	*record
	folder  string
	rateBPS int64
	names   []string
	// limit is how long a batch may take.
	limit time.Duration
}

// TestScale is what takes many nodes: no node is promised more than it offers at any moment of the API server's watch, also
// when the scheduler's leader is killed and the drivers restart; of what two schedulers promise, nodes accept what fits.
func TestScale(t *testing.T) {
	count, err := strconv.Atoi(cmp.Or(os.Getenv("WEIR_CLAIMS"), fmt.Sprint(defaultClaims)))
	must.Succeed(t, err)
	f := newFleet(t, count)
	f.testRate(t, count/2)
	f.testRestarts(t, count/2)
	if found := f.overPromises(); len(found) > 0 {
		t.Errorf("nodes are promised more than they offer: %q", found)
	}
	f.testTwoSchedulers(t)
	must.Succeed(t, f.failure())
}

// newFleet starts the control plane, its nodes and their drivers. Claims will ask for 5 % more than all nodes have.
func newFleet(t *testing.T, claimed int) *fleet {
	c := newControlPlane(t, clusterOptions{})
	f := &fleet{cluster: c, folder: t.TempDir(), limit: time.Minute + time.Duration(claimed)*100*time.Millisecond}
	f.rateBPS = int64(claimed) * meanMbit * 1e6 * 100 / 105 / (nodes - samples)
	if _, err := os.Stat(f.program()); err != nil {
		t.Skip("no drivers for many nodes: make bin/fleet")
	}
	for i := range nodes - 1 {
		f.names = append(f.names, fmt.Sprint("node", i))
	}
	must.Succeed(t, each(nodes, func(i int) error {
		name, bed := nodeName, "samples"
		if i < len(f.names) {
			name = f.names[i]
		}
		if i < nodes-samples {
			bed = "fleet"
		}
		sizes := object{"cpu": "64", "memory": "64Gi", "pods": "1000"}
		return f.do("POST", "/api/v1/nodes", object{
			"metadata": object{"name": name, "labels": object{"bed": bed, "kubernetes.io/hostname": name}},
			// No controller here looks at the node's lease.
			"status": object{"capacity": sizes, "allocatable": sizes, "conditions": []object{{"type": "Ready", "status": "True"}}},
		}, nil)
	}))
	for mbit := range 2 * meanMbit {
		exactly := object{"deviceClassName": "bandwidth.weir.dev"}
		if mbit > 0 {
			exactly["capacity"] = object{"requests": object{"egressBandwidth": fmt.Sprint(mbit, "M")}}
		}
		f.must("POST", claimAPI+inShop+"resourceclaimtemplates", object{"metadata": object{"name": fmt.Sprint("claim-", mbit)}, "spec": object{"spec": object{
			"devices": object{"requests": []object{{"name": "uplink", "exactly": exactly}}},
		}}}, nil)
	}
	f.record = f.watch()
	must.Succeed(t, os.MkdirAll(filepath.Join(c.kubelet, "plugins_registry"), 0o755))
	c.startWeir()
	f.startDrivers()
	t.Logf("%d nodes offer their bandwidth after %v", nodes, f.awaitRecord("all nodes offer bandwidth", func() (bool, any) {
		_, _, offering := f.sums(func(string) bool { return true })
		return offering == nodes, offering
	}).Round(time.Millisecond))
	f.startScheduler("kube-scheduler", defaultScheduler)
	f.awaitLeader("")
	f.startScheduler("standby", defaultScheduler)
	return f
}

// awaitRecord waits until what the watches said fits.
func (f *fleet) awaitRecord(what string, fits func() (bool, any)) time.Duration {
	f.t.Helper()
	return f.awaitFor(what, f.limit, func() (bool, any) {
		must.Succeed(f.t, f.failure())
		return fits()
	})
}

func (f *fleet) program() string { return filepath.Join(filepath.Dir(f.programs), "fleet") }

// startDrivers starts the drivers of all nodes but gateway's.
func (f *fleet) startDrivers() {
	f.runProgram("fleet", append([]string{f.program(), "run", f.file("admin.conf"), f.folder, fmt.Sprint(f.rateBPS)}, f.names...)...)
}

// each calls do for 0 to n-1, some at the same time.
func each(n int, do func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(clients)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}

// createPod creates a pod with a claim of mbit Mbit/s. The pod may run on each node with the labels.
func (f *fleet) createPod(name, scheduler string, labels object, mbit int) error {
	return f.do("POST", "/api/v1/"+inShop+"pods", object{"metadata": object{"name": name}, "spec": object{
		"schedulerName": scheduler, "nodeSelector": labels, "automountServiceAccountToken": false,
		"containers":     []object{{"name": "app", "image": "none", "resources": object{"claims": []object{{"name": "minimum"}}}}},
		"resourceClaims": []object{{"name": "minimum", "resourceClaimTemplateName": fmt.Sprint("claim-", mbit)}},
	}}, nil)
}

// createPods creates pods of a name with a number; a claim asks for mbit(number).
func (f *fleet) createPods(prefix string, n int, mbit func(i int) int) error {
	return each(n, func(i int) error {
		return f.createPod(fmt.Sprint(prefix, i), defaultScheduler, object{"bed": "fleet"}, mbit(i))
	})
}

// draw returns an amount from 1 Mbit/s to nearly twice the mean, the same for the same number.
func draw(i int) int { return 1 + rand.New(rand.NewPCG(1, uint64(i))).IntN(2*meanMbit-1) }

// testRate: with claims that the scheduler counts the control plane binds nearly as many pods as with such that need no
// counting. It is judged by the processor time of a pod, which is what limits the rate, by the median of the rounds.
func (f *fleet) testRate(t *testing.T, count int) {
	var shares []float64
	took := map[string]time.Duration{}
	for round := range rounds {
		kinds := []string{"counted", "uncounted"}
		if round%2 == 1 {
			slices.Reverse(kinds)
		}
		spent := map[string]float64{}
		for _, kind := range kinds {
			prefix, n := fmt.Sprint(kind, round, "-"), count/rounds
			before := f.processorTimes()
			began := time.Now()
			must.Succeed(t, f.createPods(prefix, n, func(i int) int { return map[string]int{"counted": draw(round*n + i)}[kind] }))
			f.awaitRecord("all pods are bound", func() (bool, any) {
				bound, refused := f.counts(prefix)
				return bound == n, fmt.Sprint(bound, refused)
			})
			now := time.Since(began)
			took[kind] += now
			var cores string
			cores, spent[kind] = spentSince(before, f.processorTimes(), now)
			t.Logf("%s: %d pods, %.1f a second, %.0f ms of a processor each; cores: %s",
				kind, n, float64(n)/now.Seconds(), 1000*spent[kind]/float64(n), cores)
		}
		shares = append(shares, spent["uncounted"]/spent["counted"])
	}
	rate := func(kind string) float64 { return float64(count/rounds*rounds) / took[kind].Seconds() }
	t.Logf("pods bound a second: %.1f with bandwidth, %.1f without; by processor time %.2f of it in each round", rate("counted"), rate("uncounted"), shares)
	slices.Sort(shares)
	if median := (shares[(len(shares)-1)/2] + shares[len(shares)/2]) / 2; median < leastShare {
		t.Errorf("with bandwidth %.0f %% of the rate without, at least %.0f are wanted", 100*median, 100*leastShare)
	}
}

// processorTimes returns the processor time of each program in seconds.
func (f *fleet) processorTimes() map[string]float64 {
	times := map[string]float64{}
	for name, p := range f.running {
		proc, err := procfs.NewProc(p.Pid())
		must.Succeed(f.t, err)
		stat, err := proc.Stat()
		must.Succeed(f.t, err)
		times[name] = stat.CPUTime()
	}
	return times
}

// spentSince returns how many processors each program used, and the processor time of the control plane in seconds: what
// drivers use goes on without pods.
func spentSince(before, after map[string]float64, during time.Duration) (cores string, spent float64) {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		used := after[name] - before[name]
		list = append(list, fmt.Sprintf("%s %.2f", name, used/during.Seconds()))
		if name != "fleet" && name != "weir-dra" {
			spent += used
		}
	}
	return strings.Join(list, ", "), spent
}

// testRestarts: pods ask for more than nodes have, while the leader of the scheduler and all drivers are killed.
func (f *fleet) testRestarts(t *testing.T, count int) {
	leader := f.awaitLeader("")
	created := make(chan error, 1)
	go func() { created <- f.createPods("late-", count, func(i int) int { return draw(count + i) }) }()
	awaitBound := func(n int) {
		f.awaitRecord(fmt.Sprint(n, " pods are bound"), func() (bool, any) {
			bound, _ := f.counts("late-")
			return bound >= n, bound
		})
	}
	awaitBound(count / 3)
	f.endProgram("kube-scheduler", syscall.SIGKILL)
	f.endProgram("fleet", syscall.SIGKILL)
	f.startDrivers()
	f.awaitLeader(leader)
	awaitBound(count / 2)
	must.Succeed(t, <-created)
	f.awaitRecord("each pod is bound or fits no node", func() (bool, any) {
		bound, refused := f.counts("late-")
		return bound+refused == count, fmt.Sprint(bound, refused)
	})
	bound, refused := f.counts("late-")
	offered, promised, _ := f.sums(func(pool string) bool { return pool != nodeName && !slices.Contains(f.sampled(), pool) })
	t.Logf("leader and drivers killed: %d pods bound, %d fit no node; %.1f %% promised", bound, refused, 100*float64(promised)/float64(offered))
	if refused == 0 || float64(promised) < 0.9*float64(offered) {
		t.Error("the nodes are not full: this shows nothing")
	}
	must.Succeed(t, each(count, func(i int) error {
		name := fmt.Sprint("late-", i)
		if f.nodeOf(name) != "" {
			return nil
		}
		return f.do("DELETE", "/api/v1/"+inShop+"pods/"+name, nil, nil)
	}))
}

// nodeOf returns the node that a pod is bound to; "" for none.
func (f *fleet) nodeOf(pod string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bound[pod]
}

// sampled returns the nodes that two schedulers fill.
func (f *fleet) sampled() []string { return append(slices.Clone(f.names[nodes-samples:]), nodeName) }

// testTwoSchedulers: two schedulers that do not know each other fill the same nodes, and a program that does not count
// promises more on top, which the watch shows. What nodes accept fits, and what is in force stays.
func (f *fleet) testTwoSchedulers(t *testing.T) {
	must.Succeed(t, f.createPod("first", defaultScheduler, object{"kubernetes.io/hostname": nodeName}, 5))
	f.awaitRecord("first is bound", func() (bool, any) { return f.nodeOf("first") != "", "" })
	f.checkPrepared(t, nodeName)
	f.startScheduler("second", second)
	const count, mbit = 160, 3
	must.Succeed(t, each(count, func(i int) error {
		return f.createPod(fmt.Sprint("two-", i), []string{defaultScheduler, second}[i%2], object{"bed": "samples"}, mbit)
	}))
	f.awaitRecord("each pod is bound or fits no node", func() (bool, any) {
		bound, refused := f.counts("two-")
		return bound+refused == count, fmt.Sprint(bound, refused)
	})
	bound, _ := f.counts("two-")
	found := f.overPromises()
	t.Logf("two schedulers: %d pods bound, %d nodes promised more than they offer", bound, len(found))
	f.promiseUncounted(f.names[0])
	f.promiseUncounted(nodeName)
	f.awaitRecord("the watch shows what was not counted", func() (bool, any) {
		now := f.overPromises()
		return slices.ContainsFunc(now, func(s string) bool { return strings.Contains(s, ": "+f.names[0]+"/") }), now
	})
	for _, node := range append(f.sampled(), f.names[0]) {
		f.checkPrepared(t, node)
	}
}

// promiseUncounted gives a pod of a node all that the node offers, whatever others have.
func (f *fleet) promiseUncounted(node string) {
	name := "uncounted-" + node
	offered, _, _ := f.sums(func(pool string) bool { return pool == node })
	capacity := object{"egressBandwidth": fmt.Sprint(offered)}
	request := object{"name": "uplink", "exactly": object{"deviceClassName": "bandwidth.weir.dev", "capacity": object{"requests": capacity}}}
	f.must("POST", claimAPI+inShop+"resourceclaims", object{"metadata": object{"name": name}, "spec": object{"devices": object{"requests": []object{request}}}}, nil)
	var p kubePod
	f.must("POST", "/api/v1/"+inShop+"pods", object{"metadata": object{"name": name}, "spec": object{
		"nodeName": node, "automountServiceAccountToken": false,
		"containers":     []object{{"name": "app", "image": "none", "resources": object{"claims": []object{{"name": "minimum"}}}}},
		"resourceClaims": []object{{"name": "minimum", "resourceClaimName": name}},
	}}, &p)
	f.must("PATCH", claimAPI+inShop+"resourceclaims/"+name+"/status", object{"status": object{
		"reservedFor": []object{{"resource": "pods", "name": name, "uid": p.Metadata.UID}},
		"allocation": object{"devices": object{"results": []object{{
			"request": "uplink", "driver": "weir.dev", "pool": node, "device": f.deviceOf(node),
			"shareID": "00000000-0000-4000-8000-000000000001", "consumedCapacity": capacity,
		}}}},
	}}, nil)
}

// checkPrepared: of a node's claims, in the order in which their pods were bound, its driver prepares those that fit, and
// refuses others with what is left. On the gateway their pods start, and all are in force.
func (f *fleet) checkPrepared(t *testing.T, node string) {
	t.Helper()
	offered, _, _ := f.sums(func(pool string) bool { return pool == node })
	pods, list, sizes := f.claimsOf(node)
	kubelet := filepath.Join(f.folder, node)
	if node == nodeName {
		kubelet = f.kubelet
	}
	said := f.prepare(kubelet, list)
	var sum int64
	accepted := map[string]int64{}
	for i, c := range list {
		fits := sum+sizes[i] <= offered
		if why := said[c.UID]; fits != (why == "") || !fits && !strings.Contains(why, "cannot be guaranteed: ") {
			t.Errorf("%s: %d more of %d, of which %d are taken: %q", node, sizes[i], offered, sum, why)
		}
		if fits {
			sum += sizes[i]
			accepted[pods[i]] = sizes[i]
		}
	}
	t.Logf("%s: %d of %d claims accepted, %d of %d bit/s", node, len(accepted), len(list), sum, offered)
	if node != nodeName {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(accepted)) {
		if _, runs := f.agent.Containers()["shop/"+name]; !runs {
			p, err := f.pod(name)
			must.Succeed(t, err)
			f.node.run(t, name, podOptions{uid: p.Metadata.UID})
		}
	}
	for name, bps := range accepted {
		got := f.agent.Container("shop/" + name)
		if got.State != v1.StateOK || got.Shares[0].AdmittedBPS != uint64(bps) || got.Shares[0].EntitledBPS < uint64(bps) {
			t.Errorf("the agent has %+v", got)
		}
	}
}

// prepare calls a driver as kubelet does, and returns its errors by the claims' UIDs.
func (f *fleet) prepare(kubelet string, list []claimRef) map[string]string {
	text, err := json.Marshal(list)
	must.Succeed(f.t, err)
	cmd := exec.Command(f.program(), "prepare", kubelet)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
	answer, err := cmd.Output()
	must.Succeed(f.t, err)
	var said map[string]string
	must.Succeed(f.t, json.Unmarshal(answer, &said))
	return said
}
