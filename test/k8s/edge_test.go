//go:build cluster

package k8s

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/internal/edge/server"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// edgeSite is a weir-edge that manages the namespace shop with the rights of the manifest.
type edgeSite struct {
	*cluster
	// name is that of its program among those of the cluster.
	name, program, dir string
	client             *server.Client
}

func (s *edgeSite) socket() string { return filepath.Join(s.dir, "edge.sock") }

// newEdgeSite gives weir-edge its rights, and starts it.
func newEdgeSite(c *cluster) *edgeSite {
	dir, err := testbed.MakeTempDir() // the path of a socket is short
	must.Succeed(c.t, err)
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &edgeSite{cluster: c, name: "weir-edge", dir: dir, program: cmp.Or(os.Getenv("WEIR_EDGE_BIN"), filepath.Join(filepath.Dir(harness.Program(c.t)), "weir-edge"))}
	s.client = server.NewClient(s.socket())
	c.applyEdge(func(kind string) bool { return kind != "Deployment" }) // here it runs beside the cluster
	var token struct{ Status struct{ Token string } }
	c.must("POST", "/api/v1/"+inShop+"serviceaccounts/weir-edge/token", object{"spec": object{}}, &token)
	c.writeKubeconfig("edge", token.Status.Token)
	text, err := os.ReadFile(c.file("edge.conf"))
	must.Succeed(c.t, err)
	c.write("edge.conf", strings.Replace(string(text), `"cluster":"c"`, `"namespace":"shop","cluster":"c"`, 1))
	must.Succeed(c.t, os.Symlink(c.Files.Socket(), filepath.Join(dir, c.Host.UplinkAddr().String()+".sock")))
	s.start()
	return s
}

// applyEdge creates what the manifest of weir-edge has of the kinds for which is returns true, for the namespace shop.
func (c *cluster) applyEdge(is func(kind string) bool, replace ...string) {
	c.t.Helper()
	const access = "/apis/rbac.authorization.k8s.io/v1/"
	for _, d := range c.manifest("weir-edge.yaml") {
		if is(d.kind) {
			c.must("POST", map[string]string{
				"ServiceAccount": "/api/v1/" + inShop + "serviceaccounts", "Role": access + inShop + "roles", "RoleBinding": access + inShop + "rolebindings",
				"ClusterRole": access + "clusterroles", "ClusterRoleBinding": access + "clusterrolebindings", "Deployment": deploymentsInShop,
			}[d.kind], strings.NewReplacer(append(replace, "default", "shop")...).Replace(d.text), nil)
		}
	}
}

func (s *edgeSite) launch() {
	s.t.Helper()
	s.runProgram(s.name, s.program, "run", "--kubernetes", s.file("edge.conf"), "--state-dir", filepath.Join(s.dir, "state"),
		"--socket", s.socket(), "--agents", "unix://"+s.dir+"/{address}.sock")
}

// start launches it, and waits until it manages the node.
func (s *edgeSite) start() {
	s.t.Helper()
	s.launch()
	s.await("weir-edge answers", func() (bool, any) {
		seen, err := s.client.Snapshot(s.t.Context())
		return err == nil && seen.Engine == "kubernetes" && len(seen.Nodes) == 1, fmt.Sprint(seen, err)
	})
}

// deploy deploys a service for a number of users; each instance serves ten.
func (s *edgeSite) deploy(name string, users int, more object) error {
	document := object{
		"par": object{"serviceName": name, "imageName": testbed.PodImage, "maxUsers": 10},
		"QoS": object{"numUsers": users},
	}
	maps.Copy(document, more)
	text, err := json.Marshal(document)
	must.Succeed(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	_, err = s.client.Deploy(ctx, text)
	return err
}

// awaitInstances waits until the instances of a service fit.
func (s *edgeSite) awaitInstances(service, what string, fits func([]edge.Instance) bool) (list []edge.Instance) {
	s.t.Helper()
	s.await(service+": "+what, func() (bool, any) {
		seen, err := s.client.Snapshot(s.t.Context())
		list = slices.DeleteFunc(seen.Instances, func(i edge.Instance) bool { return i.Service != service })
		return err == nil && fits(list), fmt.Sprint(list, err)
	})
	return list
}

func running(want int) func([]edge.Instance) bool {
	return func(list []edge.Instance) bool {
		count := 0
		for _, i := range list {
			if i.State == "running" {
				count++
			}
		}
		return count == want && len(list) == want
	}
}

// named is an object's name.
type named struct {
	Metadata struct {
		Name, UID         string
		Labels            map[string]string
		DeletionTimestamp string
	}
}

// all returns the objects of a kind that are a service's, or anything's of weir-edge without one. Pods that end are left
// out, and end at once: their program waits for half a minute.
func (s *edgeSite) all(path, service string) (list []named) {
	s.t.Helper()
	selector := "weir-edge.role"
	if service != "" {
		selector = "weir-edge.service=" + service
	}
	var found struct{ Items []named }
	s.must("GET", path+"?labelSelector="+selector, nil, &found)
	return slices.DeleteFunc(found.Items, func(o named) bool {
		if ends := o.Metadata.DeletionTimestamp != ""; !ends || path != podsInShop {
			return false
		}
		_ = s.do("DELETE", path+"/"+o.Metadata.Name, object{"gracePeriodSeconds": 1}, nil) // it may have ended
		return true
	})
}

const (
	deploymentsInShop = "/apis/apps/v1/" + inShop + "deployments"
	podsInShop        = "/api/v1/" + inShop + "pods"
	mapsInShop        = "/api/v1/" + inShop + "configmaps"
	servicesInShop    = "/api/v1/" + inShop + "services"
	templatesInShop   = claimAPI + inShop + "resourceclaimtemplates"
)

// TestEdgeKubernetes: weir-edge runs services in a namespace of a cluster.
func TestEdgeKubernetes(t *testing.T) {
	c := newCluster(t, clusterOptions{})
	c.startWeir()
	c.awaitCapacity("19M")
	s := newEdgeSite(c)
	t.Run("the Deployment of others", s.testOfOthers)
	t.Run("instances with their minimums", s.testDeploy)
	t.Run("more users", s.testScale)
	end := s.testCrowd(t)
	t.Run("two nodes", s.testTwoNodes)
	t.Run("copies of others", s.testCopies)
	t.Run("users stay on their node", s.testService)
	t.Run("another minimum replaces instances", s.testUpdate)
	t.Run("the API server is away", s.testAway)
	t.Run("weir-edge dies", s.testDies)
	t.Run("two weir-edge", s.testTwo)
	t.Run("fewer connections", end)
	t.Run("nothing is left", s.testRemove)
}

// testOfOthers: weir-edge refuses a service whose name a user's Deployment has, and leaves the Deployment alone.
func (s *edgeSite) testOfOthers(t *testing.T) {
	labels := object{"app": "other"}
	s.must("POST", deploymentsInShop, object{"metadata": object{"name": "edge-web-1"}, "spec": object{
		"replicas": 0, "selector": object{"matchLabels": labels}, "template": object{
			"metadata": object{"labels": labels}, "spec": object{"containers": []object{{"name": "app", "image": testbed.PodImage}}},
		},
	}}, nil)
	if err := s.deploy("web", 10, nil); err == nil || !strings.Contains(err.Error(), "deployments/edge-web-1 is there in namespace shop, and weir-edge has not made it") {
		t.Errorf("it says %v", err)
	}
	if made := s.all(mapsInShop, "web"); len(made) > 0 {
		t.Errorf("it has made %v", made)
	}
	s.must("GET", deploymentsInShop+"/edge-web-1", nil, nil)
	s.must("DELETE", deploymentsInShop+"/edge-web-1", nil, nil)
}

var minimum = object{"labels": object{"weir.min": "4mbit", "weir.weight": "300"}}

func (s *edgeSite) testDeploy(t *testing.T) {
	must.Succeed(t, s.deploy("web", 10, minimum))
	list := s.awaitInstances("web", "runs", running(1))
	if list[0].Node != nodeName || list[0].Instance != "web-1" {
		t.Errorf("it is %+v", list[0])
	}
	var made struct {
		Spec struct {
			Replicas int
			Template struct {
				Spec struct {
					Affinity struct {
						NodeAffinity struct {
							Preferred []struct {
								Preference struct {
									MatchFields []struct{ Values []string }
								}
							} `json:"preferredDuringSchedulingIgnoredDuringExecution"`
						}
					}
				}
			}
		}
	}
	s.must("GET", deploymentsInShop+"/edge-web-1", nil, &made)
	if preferred := fmt.Sprint(made.Spec.Template.Spec.Affinity.NodeAffinity.Preferred); made.Spec.Replicas != 1 || preferred != "[{{[{["+nodeName+"]}]}}]" {
		t.Errorf("%d replicas prefer %s", made.Spec.Replicas, preferred)
	}
	s.checkMinimums("web", 4e6)
}

// checkMinimums: the pods of a service have their minimums, by claims that the kernel keeps.
func (s *edgeSite) checkMinimums(service string, bps uint64) {
	s.t.Helper()
	for _, p := range s.all(podsInShop, service) {
		s.awaitGuaranteed(p.Metadata.Name, "True", "InForce")
		if has := s.agent.Container("shop/" + p.Metadata.Name); has.Policy.MinBPS != bps || has.Policy.Weight != 300 || has.State != v1.StateOK {
			s.t.Errorf("the agent has %+v", has)
		}
	}
}

// testScale: more users take more instances, and those for which the scheduler has no minimum say so.
func (s *edgeSite) testScale(t *testing.T) {
	before := s.all(deploymentsInShop, "web")
	must.Succeed(t, s.deploy("web", 30, minimum))
	s.awaitInstances("web", "three run", running(3))
	s.checkMinimums("web", 4e6)
	if after := s.all(deploymentsInShop, "web"); len(after) != 3 || after[0].Metadata.UID != before[0].Metadata.UID {
		t.Errorf("Deployments were %v, are %v", before, after)
	}
	must.Succeed(t, s.deploy("big", 10, object{"labels": object{"weir.min": "15mbit"}}))
	s.awaitInstances("big", "waits with the scheduler's words", func(list []edge.Instance) bool {
		return len(list) == 1 && list[0].State == "starting" && strings.Contains(list[0].Reason, "the scheduler: 0/1 nodes are available")
	})
	must.Succeed(t, s.client.Remove(t.Context(), "big"))
}

// testCrowd: connections to the pods of a service are its users, and more of them take more instances. The test that it
// returns ends them, which takes fewer.
func (s *edgeSite) testCrowd(t *testing.T) (end func(*testing.T)) {
	const service = "crowd"
	more := object{"par": object{"serviceName": service, "imageName": testbed.ServerImage, "maxUsers": 10}, "ports": []object{{"host": 90, "container": testbed.ServerPort}}, "limits": object{"instances": 2}}
	must.Succeed(t, s.deploy(service, 1, more))
	s.awaitInstances(service, "runs", running(1))
	var pod struct {
		named
		Status struct{ PodIP string }
	}
	s.must("GET", podsInShop+"/"+s.all(podsInShop, service)[0].Metadata.Name, nil, &pod)
	var users []net.Conn
	for range 9 { // of the ten that an instance serves
		must.Succeed(t, testbed.InNetNS(s.Host.NetNSPath(), func() error {
			user, err := net.Dial("tcp", net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(testbed.ServerPort)))
			if err == nil {
				users = append(users, user)
				_, err = user.Write([]byte("ask")) // which is not answered
			}
			return err
		}))
	}
	seen := func(instances, count int) func() (bool, any) {
		return func() (bool, any) {
			seen, err := s.client.Snapshot(t.Context())
			i := slices.IndexFunc(seen.Services, func(of edge.Service) bool { return of.Name == service })
			return err == nil && i >= 0 && seen.Services[i].Running == instances && seen.Services[i].Users == count, fmt.Sprint(seen.Services, seen.Decisions, err)
		}
	}
	s.await("nine users have a second instance", seen(2, len(users)))
	var why edge.Decision // to start the second one
	must.Succeed(t, s.client.Events(t.Context(), false, func(e edge.Event) error {
		if e.Decision != nil && e.Decision.Action == "start" && e.Instance == service+"-2" {
			why = *e.Decision
		}
		return nil
	}))
	// Before nine users are counted, the first one is reason enough where this machine has no processor left.
	if !strings.Contains(why.Reason, "9 users, and 1 instance has room for 10") && why.Cause != "exhausted" {
		t.Errorf("no event says that users are too many: %+v", why)
	}
	first := s.all(podsInShop, service)
	return func(t *testing.T) {
		const stay = 2
		for _, user := range users[stay:] {
			user.Close()
		}
		// After a minute. Those who stay are at the first pod: they count if that runs on, and otherwise not. While this machine has
		// no processor left, its users keep both.
		began, busy := time.Now(), false
		s.awaitFor("one instance is enough", 3*patience, func() (bool, any) {
			if busy = time.Since(began) > 2*patience && s.keepsExhausted(service); busy {
				return true, nil
			}
			left := s.all(podsInShop, service)
			if len(left) != 1 {
				return false, left
			}
			counted := 0
			if left[0].Metadata.UID == pod.Metadata.UID {
				counted = stay
			}
			return seen(1, counted)()
		})
		if busy {
			t.Log("this machine has no processor left: no user stays")
			for _, user := range users[:stay] {
				user.Close()
			}
			s.awaitFor("no user needs a second instance", 3*patience, seen(1, 0))
		}
		for _, p := range s.all(podsInShop, service) { // kubelet makes a new pod, without connections
			must.Succeed(t, s.do("DELETE", podsInShop+"/"+p.Metadata.Name, object{"gracePeriodSeconds": 1}, nil))
		}
		s.await("connections of a pod that is gone do not count", func() (bool, any) {
			left := s.all(podsInShop, service)
			if len(left) != 1 || slices.ContainsFunc(first, func(p named) bool { return p.Metadata.UID == left[0].Metadata.UID }) {
				return false, left
			}
			return seen(1, 0)()
		})
		must.Succeed(t, s.client.Remove(t.Context(), service))
		for _, user := range users[:stay] {
			user.Close()
		}
	}
}

// keepsExhausted reports whether weir-edge stops no instance of a service because a container or a node is exhausted.
func (s *edgeSite) keepsExhausted(service string) bool {
	seen, err := s.client.Snapshot(s.t.Context())
	return err == nil && slices.ContainsFunc(seen.Decisions, func(d edge.Decision) bool {
		return d.Service == service && d.Action == "keep" && d.Cause == "exhausted"
	})
}

// secondNode is one without kubelet, whose part playKubelet plays.
const secondNode = "second"

// playKubelet says of pods on the second node that they run, and ends those that are to end, until the test ends.
func (s *edgeSite) playKubelet(t *testing.T) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for number := 1; t.Context().Err() == nil; {
			var list struct {
				Items []struct {
					Metadata struct{ Name, DeletionTimestamp string }
					Status   struct{ Phase string }
				}
			}
			_ = s.do("GET", podsInShop+"?fieldSelector=spec.nodeName="+secondNode, nil, &list) // the next look may succeed
			for _, p := range list.Items {
				switch {
				case p.Metadata.DeletionTimestamp != "":
					_ = s.do("DELETE", podsInShop+"/"+p.Metadata.Name, object{"gracePeriodSeconds": 0}, nil)
				case p.Status.Phase != "Running":
					address, now := fmt.Sprint("198.19.254.", number), time.Now().Format(time.RFC3339)
					number++
					_ = s.do("PATCH", podsInShop+"/"+p.Metadata.Name+"/status", object{"status": object{
						"phase": "Running", "podIP": address, "podIPs": []object{{"ip": address}}, "startTime": now,
						"conditions": []object{{"type": "PodScheduled", "status": "True"}, {"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}},
						"containerStatuses": []object{{
							"name": "instance", "ready": true, "started": true, "restartCount": 0, "image": testbed.PodImage, "imageID": "",
							"state": object{"running": object{"startedAt": now}},
						}},
					}}, nil)
				}
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
	t.Cleanup(func() { <-ended })
}

// testTwoNodes: the scheduler places instances where the engine prefers them, apart for availability, and EndpointSlices hint
// users of each node to the instances there.
func (s *edgeSite) testTwoNodes(t *testing.T) {
	sizes := object{"cpu": "64", "memory": "64Gi", "pods": "100"}
	s.must("POST", "/api/v1/nodes", object{
		"metadata": object{"name": secondNode, "labels": object{"kubernetes.io/hostname": secondNode}},
		"status": object{
			"capacity": sizes, "allocatable": sizes, "conditions": []object{{"type": "Ready", "status": "True"}},
			"addresses": []object{{"type": "InternalIP", "address": "198.19.253.1"}},
		},
	}, nil)
	s.playKubelet(t)
	s.await("weir-edge knows two nodes", func() (bool, any) {
		seen, err := s.client.Snapshot(t.Context())
		waits := slices.ContainsFunc(seen.Nodes, func(n edge.Node) bool { return n.State != "ready" })
		return err == nil && len(seen.Nodes) == 2 && !waits, fmt.Sprint(seen.Nodes, err)
	})
	const service = "wide"
	must.Succeed(t, s.deploy(service, 40, object{
		"par": object{"serviceName": service, "imageName": testbed.ServerImage, "maxUsers": 10},
		"QoS": object{"numUsers": 40, "availability": 99.9}, "ports": []object{{"host": 91, "container": testbed.ServerPort}},
	}))
	list := s.awaitInstances(service, "four run", running(4))
	on := map[string]int{}
	for _, i := range list {
		on[i.Node]++
	}
	if len(on) != 2 {
		t.Errorf("for availability they are on %v", on)
	}
	var made struct {
		Items []struct {
			Metadata struct {
				Labels, Annotations map[string]string
			}
		}
	}
	s.must("GET", deploymentsInShop+"?labelSelector=weir-edge.service="+service, nil, &made)
	for _, d := range made.Items {
		name, preferred := d.Metadata.Labels["weir-edge.instance"], d.Metadata.Annotations["weir-edge.dev/node"]
		if i := slices.IndexFunc(list, func(i edge.Instance) bool { return i.Instance == name }); i < 0 || list[i].Node != preferred {
			t.Errorf("%s is to be on %s: %+v", name, preferred, list)
		}
	}
	t.Logf("instances by node: %v", on)
	s.await("users stay on their node", func() (bool, any) {
		var slices struct {
			Items []struct {
				Endpoints []struct {
					NodeName string
					Hints    struct{ ForNodes []struct{ Name string } }
				}
			}
		}
		err := s.do("GET", "/apis/discovery.k8s.io/v1/"+inShop+"endpointslices?labelSelector=kubernetes.io/service-name="+service, nil, &slices)
		count := 0
		for _, part := range slices.Items {
			for _, e := range part.Endpoints {
				if len(e.Hints.ForNodes) == 1 && e.Hints.ForNodes[0].Name == e.NodeName {
					count++
				}
			}
		}
		return count == len(list), fmt.Sprint(slices, err)
	})
	must.Succeed(t, s.client.Remove(t.Context(), service))
	s.await("its pods are gone", func() (bool, any) {
		left := s.all(podsInShop, service)
		return len(left) == 0, left
	})
	s.must("DELETE", "/api/v1/nodes/"+secondNode, nil, nil)
	s.await("weir-edge knows one node", func() (bool, any) {
		seen, err := s.client.Snapshot(t.Context())
		return err == nil && len(seen.Nodes) == 1, fmt.Sprint(seen.Nodes, err)
	})
}

// testCopies: a copy of an instance's Deployment under another name is none, nor is its pod the instance's.
func (s *edgeSite) testCopies(t *testing.T) {
	var made object
	list := s.all(deploymentsInShop, "web")
	s.must("GET", deploymentsInShop+"/"+list[0].Metadata.Name, nil, &made)
	about := made["metadata"].(object)
	made["metadata"] = object{"name": "copy", "labels": about["labels"], "annotations": about["annotations"], "ownerReferences": about["ownerReferences"]}
	delete(made, "status")
	before, err := s.client.Snapshot(t.Context())
	must.Succeed(t, err)
	s.must("POST", deploymentsInShop, made, nil)
	s.await("the copy has a pod", func() (bool, any) {
		for _, p := range s.all(podsInShop, "web") {
			if strings.HasPrefix(p.Metadata.Name, "copy-") {
				return true, nil
			}
		}
		return false, nil
	})
	time.Sleep(2 * time.Second)
	after, err := s.client.Snapshot(t.Context())
	must.Succeed(t, err)
	of := func(seen edge.Snapshot) (list []string) {
		for _, i := range seen.Instances {
			if i.Service == "web" {
				list = append(list, i.Instance+" "+i.ContainerID)
			}
		}
		return list
	}
	if !slices.Equal(of(before), of(after)) {
		t.Errorf("instances were %v, are %v", of(before), of(after))
	}
	s.must("DELETE", deploymentsInShop+"/copy?propagationPolicy=Background", nil, nil)
	s.await("its pod is gone", func() (bool, any) {
		list := s.all(podsInShop, "web")
		return len(list) == len(of(before)), list
	})
}

func (s *edgeSite) testService(t *testing.T) {
	must.Succeed(t, s.deploy("page", 10, object{"ports": []object{{"host": 80, "container": 8080}}}))
	var made struct {
		Spec struct {
			TrafficDistribution string
			Selector            map[string]string
			Ports               []struct {
				Port       int
				TargetPort string
			}
		}
	}
	s.must("GET", servicesInShop+"/page", nil, &made)
	if spec := made.Spec; spec.TrafficDistribution != "PreferSameNode" || spec.Selector["weir-edge.service"] != "page" || len(spec.Ports) != 1 || spec.Ports[0].Port != 80 || spec.Ports[0].TargetPort != "port-80" {
		t.Errorf("the Service is %+v", spec)
	}
	s.must("DELETE", servicesInShop+"/page", nil, nil)
	s.await("the Service is made again", func() (bool, any) {
		err := s.do("GET", servicesInShop+"/page", nil, nil)
		return err == nil, err
	})
	s.awaitInstances("page", "runs and does not listen", func(list []edge.Instance) bool {
		return len(list) == 1 && list[0].State == "starting" && strings.Contains(list[0].Reason, "health check")
	})
	must.Succeed(t, s.client.Remove(t.Context(), "page"))
}

// testUpdate: pods have the minimum that they were started with, so another one starts others. Fewer users take fewer
// instances.
func (s *edgeSite) testUpdate(t *testing.T) {
	must.Succeed(t, s.deploy("web", 10, object{"labels": object{"weir.min": "2mbit", "weir.weight": "300"}}))
	s.await("all instances have the new minimum", func() (bool, any) {
		list := s.all(podsInShop, "web")
		for _, p := range list {
			if has, is := s.agent.Containers()["shop/"+p.Metadata.Name]; !is || has.Policy.MinBPS != 2e6 {
				return false, fmt.Sprint(p.Metadata.Name, has.Policy)
			}
		}
		return len(list) > 0, list
	})
	s.await("the template of the former minimum is gone", func() (bool, any) {
		list := s.all(templatesInShop, "web")
		return len(list) == 1 && list[0].Metadata.Name == "edge-minimum-web-2000000-0", list
	})
	s.awaitFor("one instance is left", 4*patience, func() (bool, any) { // each waits for a minute
		list := s.all(deploymentsInShop, "web")
		return len(list) == 1, list
	})
	s.awaitInstances("web", "one runs", running(1))
}

// testAway: what runs stays while the API server is away, and weir-edge says so once.
func (s *edgeSite) testAway(t *testing.T) {
	before := s.all(podsInShop, "web")
	s.endProgram("kube-apiserver", syscall.SIGKILL)
	s.await("weir-edge says so", func() (bool, any) {
		seen, err := s.client.Snapshot(t.Context())
		return err == nil && len(seen.Services) > 0 && strings.Contains(seen.Services[0].Reason, "ask the API server at"), fmt.Sprint(seen.Services, err)
	})
	time.Sleep(3 * time.Second)
	for _, p := range before {
		if has := s.agent.Container("shop/" + p.Metadata.Name); has.State != v1.StateOK || has.Policy.MinBPS != 2e6 {
			t.Errorf("the agent has %+v", has)
		}
	}
	said := 0
	must.Succeed(t, s.client.Events(t.Context(), false, func(e edge.Event) error {
		if strings.Contains(e.Message, "ask the API server at") {
			said++
		}
		return nil
	}))
	if said < 1 || said > 2 { // a connection that breaks is another error than one that is refused
		t.Errorf("it has said so %d times", said)
	}
	s.startAPIServer()
	s.awaitInstances("web", "is listed again", func(list []edge.Instance) bool {
		seen, err := s.client.Snapshot(t.Context())
		return err == nil && len(list) == len(before) && !strings.Contains(seen.Services[0].Reason, "API server")
	})
	if after := s.all(podsInShop, "web"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were %v, are %v", before, after)
	}
}

// testDies: another weir-edge finds what runs.
func (s *edgeSite) testDies(t *testing.T) {
	before := s.all(podsInShop, "web")
	s.endProgram("weir-edge", syscall.SIGKILL)
	s.start()
	s.awaitInstances("web", "runs on", running(len(before)))
	time.Sleep(2 * time.Second)
	if after := s.all(podsInShop, "web"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were %v, are %v", before, after)
	}
}

// testTwo: a second weir-edge of the namespace waits, takes over when the first one ends, and is followed by it when it dies.
func (s *edgeSite) testTwo(t *testing.T) {
	before := s.all(podsInShop, "web")
	other := *s
	other.name, other.dir = "second-edge", filepath.Join(s.dir, "second")
	must.Succeed(t, os.Mkdir(other.dir, 0o700))
	must.Succeed(t, os.Symlink(s.Files.Socket(), filepath.Join(other.dir, s.Host.UplinkAddr().String()+".sock")))
	other.client = server.NewClient(other.socket())
	other.launch()
	waits := func(waiting *edgeSite) func() (bool, any) {
		return func() (bool, any) {
			err := waiting.deploy("late", 1, nil)
			return err != nil && strings.Contains(err.Error(), "another weir-edge manages the namespace"), err
		}
	}
	s.await("the second one waits", waits(&other))
	if said, err := s.Host.Command(t.Context(), s.program, "ps", "--socket", other.socket()).CombinedOutput(); err != nil || !strings.Contains(string(said), "does not know yet what runs") {
		t.Errorf("%v: the one that waits lists %s", err, said)
	}
	must.Succeed(t, s.deploy("early", 1, nil))
	must.Succeed(t, s.client.Remove(t.Context(), "early"))
	s.endProgram(s.name, syscall.SIGTERM)
	took := s.await("the second one takes over", func() (bool, any) {
		err := other.deploy("late", 1, nil)
		return err == nil, err
	})
	s.launch()
	s.await("the first one waits", waits(s))
	s.endProgram(other.name, syscall.SIGKILL)
	s.await("the first one knows the service", func() (bool, any) {
		err := s.client.Remove(t.Context(), "late")
		return err == nil, err
	})
	t.Logf("taken over after %v", took.Round(time.Millisecond))
	s.awaitInstances("web", "runs on", running(len(before)))
	if after := s.all(podsInShop, "web"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("pods were %v, are %v", before, after)
	}
}

func (s *edgeSite) testRemove(t *testing.T) {
	must.Succeed(t, s.client.Remove(t.Context(), "web"))
	s.await("its objects are gone", func() (bool, any) {
		var left []string
		for _, path := range []string{deploymentsInShop, podsInShop, servicesInShop, templatesInShop, mapsInShop} {
			for _, o := range s.all(path, "web") {
				left = append(left, path+"/"+o.Metadata.Name)
			}
		}
		return len(left) == 0, left
	})
	weirEdge := s.running["weir-edge"]
	delete(s.running, "weir-edge") // it ends
	down := s.Host.Command(t.Context(), s.program, "down", "--kubernetes", s.file("edge.conf"), "--socket", s.socket(), "--state-dir", filepath.Join(s.dir, "state"))
	if said, err := down.CombinedOutput(); err != nil || !strings.Contains(string(said), "nothing of weir-edge is left") {
		t.Errorf("%v: %s", err, said)
	}
	<-weirEdge.Ended()
	if left := s.all(mapsInShop, ""); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	s.awaitCapacity("19M")
}
