//go:build cluster

package k8s

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/k8s/claims"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
)

const (
	nodeName = "gateway"
	// patience is how long Kubernetes may take for what it does; kubelet tries again with pauses of up to
	// two minutes.
	patience         = time.Minute
	defaultScheduler = "default-scheduler"
	// requestRate is how many requests a second controllers and schedulers may make: those of many pods.
	requestRate = 5000
	// clients is how many requests tests make at the same time.
	clients  = 16
	claimAPI = "/apis/resource.k8s.io/v1/"
	// serviceAddress is where pods find the API server: there is no kube-proxy.
	serviceAddress = "198.19.255.1"
	inShop         = "namespaces/shop/"
)

// cluster is a node of Kubernetes with its control plane. All of it is in the node's network namespace.
type cluster struct {
	*node
	programs, address string
	client            *http.Client
	// token is weir-dra's.
	token string
	// files has what the programs of Kubernetes read.
	files string
	// running are its programs by name.
	running map[string]*testbed.Process
	clusterOptions
}

// clusterOptions say how a cluster is not as by default.
type clusterOptions struct {
	// gates are features of Kubernetes, NAME=BOOLEAN.
	gates []string
	// requiredPlugin is the one without which NRI's default validator lets no container start.
	requiredPlugin string
}

// newCluster starts a control plane and kubelet.
func newCluster(t *testing.T, o clusterOptions) *cluster {
	c := newControlPlane(t, o)
	c.kubelet = claims.KubeletFolder
	c.startScheduler("kube-scheduler", defaultScheduler)
	c.awaitLeader("")
	c.startKubelet()
	return c
}

// newControlPlane starts etcd, the API server and controllers, beside a node without kubelet.
func newControlPlane(t *testing.T, o clusterOptions) *cluster {
	programs, err := filepath.Abs("../../bin/controlplane")
	must.Succeed(t, err)
	if _, err := os.Stat(filepath.Join(programs, "kubelet")); err != nil {
		t.Skip("no control plane of Kubernetes: make bin/controlplane")
	}
	bed := newNode(t, func(of *testbed.ContainerdOptions) { of.RequiredPlugin = o.requiredPlugin })
	c := &cluster{node: bed, programs: programs, files: t.TempDir(), address: "127.0.0.1:443", running: map[string]*testbed.Process{}, clusterOptions: o}
	c.client = &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: clients,
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true}, // the API server makes its own certificate
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = testbed.InNetNS(c.Host.NetNSPath(), func() error {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	c.Run("ip", "address", "add", serviceAddress+"/32", "dev", "lo")
	c.startControlPlane()
	c.must("POST", "/api/v1/namespaces", object{"metadata": object{"name": "shop"}}, nil)
	for _, namespace := range []string{"shop", "kube-system"} {
		c.await(namespace+" has its service account", func() (bool, any) {
			err := c.do("GET", "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", nil, nil)
			return err == nil, err
		})
	}
	return c
}

// startWeir starts the agent, weir-k8s and weir-dra as programs of the node, which tests can kill; weir-dra
// with the rights of the manifest.
func (c *cluster) startWeir() {
	c.t.Helper()
	manifest := c.manifest("weir.yaml")
	if c.gates != nil {
		manifest = append(manifest, c.manifest("weir-before-1.36.yaml")...)
	}
	for _, document := range manifest {
		if document.kind != "DaemonSet" && document.kind != "ConfigMap" {
			c.apply(document)
		}
	}
	var n struct{ Metadata struct{ UID string } }
	c.must("GET", "/api/v1/nodes/"+nodeName, nil, &n)
	var token struct{ Status struct{ Token string } }
	c.must("POST", "/api/v1/namespaces/kube-system/serviceaccounts/weir/token", object{
		"spec": object{"boundObjectRef": object{"kind": "Node", "apiVersion": "v1", "name": nodeName, "uid": n.Metadata.UID}},
	}, &token)
	c.token = token.Status.Token
	c.writeKubeconfig("weir-dra", c.token)
	c.startAgent()
	c.startPlugin()
	c.awaitPlugin()
	c.startDRA()
}

func (c *cluster) startControlPlane() {
	c.write("key", string(newKey(c.t)))
	c.write("tokens.csv", "admin,admin,1,system:masters\nscheduler,system:kube-scheduler,2,\nkubelet,system:node:gateway,3,system:nodes\n")
	for _, user := range []string{"admin", "scheduler", "kubelet"} {
		c.writeKubeconfig(user, user)
	}
	c.start("server", "--data-dir", filepath.Join(c.files, "etcd"), "--unsafe-no-fsync")
	c.startAPIServer()
	c.start("kube-controller-manager", "--kubeconfig", c.file("admin.conf"), "--leader-elect=false", "--secure-port", "0",
		"--kube-api-qps", fmt.Sprint(requestRate), "--kube-api-burst", fmt.Sprint(requestRate),
		"--controllers", "daemonset-controller,deployment-controller,replicaset-controller,serviceaccount-controller,root-ca-certificate-publisher-controller,resourceclaim-controller,garbage-collector-controller,endpointslice-controller",
		"--root-ca-file", c.file("apiserver.crt"), "--service-account-private-key-file", c.file("key"))
}

// startScheduler starts a scheduler, of the pods that name it. Of several processes of the default one the leader works.
func (c *cluster) startScheduler(process, scheduler string) {
	c.t.Helper()
	config, err := json.Marshal(object{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": []object{{"schedulerName": scheduler}},
		"clientConnection": object{"kubeconfig": c.file("scheduler.conf"), "qps": requestRate, "burst": requestRate},
		"leaderElection": object{ // a starved leader is not to give up
			"leaderElect": scheduler == defaultScheduler, "leaseDuration": "30s", "renewDeadline": "25s",
		},
	})
	must.Succeed(c.t, err)
	c.write(process+".yaml", string(config))
	c.runProgram(process, filepath.Join(c.programs, "kube-scheduler"), "--config", c.file(process+".yaml"), "--secure-port", "0", "--feature-gates", strings.Join(c.gates, ","))
}

// awaitLeader waits until the default scheduler has another leader than before, and returns it.
func (c *cluster) awaitLeader(before string) string {
	c.t.Helper()
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	c.await("the scheduler has a leader", func() (bool, any) {
		err := c.do("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", nil, &lease)
		return err == nil && lease.Spec.HolderIdentity != "" && lease.Spec.HolderIdentity != before, fmt.Sprint(lease, err)
	})
	return lease.Spec.HolderIdentity
}

func (c *cluster) startAPIServer() {
	c.start("kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--secure-port", "443", "--bind-address", "0.0.0.0",
		"--advertise-address", c.Host.UplinkAddr().String(), "--kubelet-preferred-address-types", "InternalIP", "--endpoint-reconciler-type", "none", "--cert-dir", c.files,
		"--token-auth-file", c.file("tokens.csv"), "--authorization-mode", "Node,RBAC", "--service-account-issuer", "https://weir.test",
		"--service-account-key-file", c.file("key"), "--service-account-signing-key-file", c.file("key"),
		"--feature-gates", strings.Join(c.gates, ","), "--allow-privileged", "--service-cluster-ip-range", "198.19.255.0/24", "--enable-admission-plugins", "NodeRestriction", "--disable-admission-plugins", "TaintNodesByCondition")
	c.await("the API server answers", func() (bool, any) {
		err := c.do("GET", "/readyz", nil, nil)
		return err == nil, err
	})
}

// kubeletConfig has the CRI's socket, the cgroup of pods and the folder of their logs. Nothing of the
// machine decides whether it starts, or is changed by it.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
cgroupDriver: cgroupfs
cgroupRoot: %s
podLogsDir: %s
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
makeIPTablesUtilChains: false
localStorageCapacityIsolation: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 1Mi}
syncFrequency: 5s
address: 0.0.0.0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`

// kubeletScript gives kubelet a log folder of its own, the cgroup of pods, mounts that it can pass on, and the settings of the kernel
// that it asks for, so that it does not change the machine's. Its first argument is the cgroup.
const kubeletScript = `set -e
mount -t tmpfs kubelet /var/log
mount --make-shared /run
for hierarchy in /sys/fs/cgroup/*/; do
	mkdir -p "$hierarchy$1"
done
shift
for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	f=/run/kubelet.$(echo "${s%%=*}" | tr / .)
	echo "${s#*=}" > "$f"
	mount --bind "$f" "/proc/sys/${s%%=*}"
done
exec "$@"`

func (c *cluster) startKubelet() {
	c.write("kubelet.yaml", fmt.Sprintf(kubeletConfig, c.containerd.Socket(), c.containerd.CgroupParent(), c.file("logs")))
	c.startHere("kubelet", "sh", "-c", kubeletScript, "sh", c.containerd.CgroupParent(), filepath.Join(c.programs, "kubelet"), "--config", c.file("kubelet.yaml"),
		"--kubeconfig", c.file("kubelet.conf"), "--hostname-override", nodeName, "--node-ip", c.Host.UplinkAddr().String())
	c.await("the node is ready", func() (bool, any) {
		var n struct {
			Status struct {
				Conditions []condition
			}
		}
		err := c.do("GET", "/api/v1/nodes/"+nodeName, nil, &n)
		return slices.ContainsFunc(n.Status.Conditions, func(c condition) bool { return c.Type == "Ready" && c.Status == "True" }), fmt.Sprint(n, err)
	})
}

// startDRA starts weir-dra as a pod on the node would be.
func (c *cluster) startDRA() {
	c.startHere("weir-dra", filepath.Join(filepath.Dir(c.programs), "weir-dra"), "--kubeconfig", c.file("weir-dra.conf"), "--node", nodeName,
		"--socket", c.Files.Socket(), "--kubelet", c.kubelet, "--verbose")
}

// start runs a program of Kubernetes until the test ends.
func (c *cluster) start(program string, args ...string) {
	c.t.Helper()
	c.runProgram(program, append([]string{filepath.Join(c.programs, program)}, args...)...)
}

// startHere runs a program where the files of the node are.
func (c *cluster) startHere(name string, args ...string) {
	c.t.Helper()
	c.runProgram(name, append(c.containerd.Enter(), args...)...)
}

func (c *cluster) runProgram(name string, args ...string) {
	c.t.Helper()
	p, err := testbed.StartProcess(name, c.Host.Command(context.Background(), args[0], args[1:]...))
	must.Succeed(c.t, err)
	c.running[name] = p
	c.t.Cleanup(func() {
		_ = p.End(syscall.SIGKILL, noticed) // some tests have ended it
		if text := p.Said(); c.t.Failed() {
			c.t.Logf("%s said:\n%s", name, text[max(0, len(text)-6000):])
		}
	})
}

// endProgram ends a program by a signal, as a crash or an operator would.
func (c *cluster) endProgram(name string, signal syscall.Signal) {
	_ = c.running[name].End(signal, noticed) // its exit code may be that of a kill
	delete(c.running, name)
}

func (c *cluster) file(name string) string { return filepath.Join(c.files, name) }

func (c *cluster) write(name, text string) {
	must.Succeed(c.t, os.WriteFile(c.file(name), []byte(text), 0o600))
}

// newKey returns the key that tokens of service accounts are signed with.
func newKey(t testing.TB) []byte {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
}

func (c *cluster) writeKubeconfig(user, token string) {
	text, err := json.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []object{{"name": "c", "cluster": object{"server": "https://" + c.address, "insecure-skip-tls-verify": true}}},
		"users":    []object{{"name": "u", "user": object{"token": token}}},
		"contexts": []object{{"name": "x", "context": object{"cluster": "c", "user": "u"}}},
	})
	must.Succeed(c.t, err)
	c.write(user+".conf", string(text))
}

// do asks the API server as its administrator.
func (c *cluster) do(method, path string, body, into any) error {
	return c.doAs("admin", method, path, body, into)
}

// doAs asks the API server. body is text in YAML or an object.
func (c *cluster) doAs(token, method, path string, body, into any) error {
	kind, text := "application/yaml", []byte(nil)
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		kind = "application/json"
		if method == "PATCH" {
			kind = "application/merge-patch+json"
		}
		text, _ = json.Marshal(b)
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+c.address+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header = http.Header{"Content-Type": {kind}, "Accept": {"application/json"}, "Authorization": {"Bearer " + token}}
	answer, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, said)
	}
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(said, into)
}

func (c *cluster) must(method, path string, body, into any) {
	c.t.Helper()
	must.Succeed(c.t, c.do(method, path, body, into))
}

// await waits until is reports true; its second value is shown otherwise. A program that has ended is not
// waited for.
func (c *cluster) await(what string, is func() (bool, any)) time.Duration {
	c.t.Helper()
	return c.awaitFor(what, patience, is)
}

// awaitFor is await with a limit of its own.
func (c *cluster) awaitFor(what string, limit time.Duration, is func() (bool, any)) time.Duration {
	c.t.Helper()
	return c.Await(what, limit, func() (bool, string) {
		yes, seen := is()
		for name, p := range c.running {
			select {
			case <-p.Ended():
				c.t.Fatalf("%s has ended: %v", name, p.Err())
			default:
			}
		}
		return yes, fmt.Sprint(seen)
	})
}

// document is an object of the manifest, in YAML.
type document struct{ kind, text string }

var kinds = regexp.MustCompile(`(?m)^kind: (\w+)$`)

// manifest returns what a shipped file has.
func (c *cluster) manifest(file string) (list []document) {
	c.t.Helper()
	text, err := os.ReadFile("../../packaging/kubernetes/" + file)
	must.Succeed(c.t, err)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		if kind := kinds.FindStringSubmatch(part); kind != nil {
			list = append(list, document{kind[1], part})
		}
	}
	return list
}

// apply creates an object.
func (c *cluster) apply(d document) {
	c.t.Helper()
	const access, policies, system = "/apis/rbac.authorization.k8s.io/v1/", "/apis/admissionregistration.k8s.io/v1/", "namespaces/kube-system/"
	c.must("POST", map[string]string{
		"DeviceClass": claimAPI + "deviceclasses", "ServiceAccount": "/api/v1/" + system + "serviceaccounts",
		"ConfigMap": "/api/v1/" + system + "configmaps", "DaemonSet": "/apis/apps/v1/" + system + "daemonsets",
		"ValidatingAdmissionPolicy": policies + "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": policies + "validatingadmissionpolicybindings",
		"MutatingAdmissionPolicy": policies + "mutatingadmissionpolicies", "MutatingAdmissionPolicyBinding": policies + "mutatingadmissionpolicybindings",
		"Role": access + system + "roles", "RoleBinding": access + system + "rolebindings", "Deployment": "/apis/apps/v1/" + system + "deployments",
		"ClusterRole": access + "clusterroles", "ClusterRoleBinding": access + "clusterrolebindings",
	}[d.kind], d.text, nil)
}

// condition is one of Kubernetes' in any object.
type condition struct {
	Type, Status, Reason, Message string
	LastTransitionTime            time.Time
}

// kubePod is what tests want to know of a pod.
type kubePod struct {
	Metadata struct{ UID string }
	Spec     struct {
		NodeName       string
		ResourceClaims []any
	}
	Status struct {
		Phase                 string
		Conditions            []condition
		ResourceClaimStatuses []struct{ ResourceClaimName string }
	}
}

// create creates a pod.
func (c *cluster) create(name string, o podOptions) {
	c.t.Helper()
	app := object{"name": "app", "image": testbed.PodImage, "imagePullPolicy": "Never", "command": []string{"/bin/busybox", "sleep", "1000000"}}
	pod := object{
		"containers": []object{app}, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "enableServiceLinks": false,
		"dnsPolicy": "Default", "hostNetwork": o.host,
	}
	if o.kbps != "" {
		app["resources"] = object{"limits": object{"weir.dev/egress-kbps": o.kbps}}
	}
	if o.claim != "" {
		template := "weir-min-" + strings.ToLower(o.claim)
		err := c.do("POST", claimAPI+inShop+"resourceclaimtemplates", object{"metadata": object{"name": template}, "spec": object{"spec": object{
			"devices": object{"requests": []object{{"name": "uplink", "exactly": object{
				"deviceClassName": "bandwidth.weir.dev", "capacity": object{"requests": object{"egressBandwidth": o.claim}},
			}}}},
		}}}, nil)
		if err != nil && !strings.Contains(err.Error(), "AlreadyExists") {
			c.t.Fatal(err)
		}
		pod["resourceClaims"] = []object{{"name": "minimum", "resourceClaimTemplateName": template}}
		app["resources"] = object{"claims": []object{{"name": "minimum"}}}
	}
	c.must("POST", "/api/v1/"+inShop+"pods", object{"metadata": object{"name": name, "annotations": o.annotations}, "spec": pod}, nil)
}

// annotate changes annotations of a pod that runs; nil removes one.
func (c *cluster) annotate(name string, annotations object) {
	c.t.Helper()
	c.must("PATCH", "/api/v1/"+inShop+"pods/"+name, object{"metadata": object{"annotations": annotations}}, nil)
}

func (c *cluster) pod(name string) (p kubePod, err error) {
	return p, c.do("GET", "/api/v1/"+inShop+"pods/"+name, nil, &p)
}

func (c *cluster) awaitPod(name, what string, fits func(kubePod) bool) (p kubePod) {
	c.t.Helper()
	c.await("pod "+name+" "+what, func() (bool, any) {
		var err error
		p, err = c.pod(name)
		return err == nil && fits(p), fmt.Sprint(p, err)
	})
	return p
}

func (c *cluster) awaitRunning(name string) kubePod {
	c.t.Helper()
	return c.awaitPod(name, "runs", func(p kubePod) bool { return p.Status.Phase == "Running" })
}

// awaitPending waits until the scheduler has found no node for a pod, and returns its words.
func (c *cluster) awaitPending(name string) (why string) {
	c.t.Helper()
	c.awaitPod(name, "is pending", func(p kubePod) bool {
		for _, found := range p.Status.Conditions {
			if found.Reason == "Unschedulable" {
				why = found.Message
			}
		}
		return why != ""
	})
	return why
}

// end ends a pod, and waits until it is gone.
func (c *cluster) end(name string) {
	c.t.Helper()
	c.must("DELETE", "/api/v1/"+inShop+"pods/"+name, nil, nil)
	c.await("pod "+name+" is gone", func() (bool, any) {
		p, err := c.pod(name)
		return err != nil && strings.Contains(err.Error(), "NotFound"), fmt.Sprint(p, err)
	})
	if c.agent != nil { // not one that runs in a pod
		c.agent.AwaitGone("shop/"+name, noticed)
	}
}

// awaitEvent waits for an event of a pod that contains words.
func (c *cluster) awaitEvent(pod, words string) {
	c.t.Helper()
	c.awaitEventIn(inShop, pod, words)
}

func (c *cluster) awaitEventIn(namespace, about, words string) {
	c.t.Helper()
	c.await("an event of "+about+" says "+words, func() (bool, any) {
		var list struct {
			Items []struct{ Reason, Message string }
		}
		err := c.do("GET", "/api/v1/"+namespace+"events?fieldSelector=involvedObject.name="+about, nil, &list)
		for _, e := range list.Items {
			if strings.Contains(e.Message, words) {
				return true, nil
			}
		}
		return false, fmt.Sprint(list, err)
	})
}

// awaitCapacity waits until the node's slice has a capacity.
func (c *cluster) awaitCapacity(want string) {
	c.t.Helper()
	c.await("the capacity is "+want, func() (bool, any) {
		var list struct {
			Items []struct {
				Spec struct {
					Devices []struct {
						Name                     string
						AllowMultipleAllocations bool
						Capacity                 map[string]struct{ Value string }
					}
				}
			}
		}
		err := c.do("GET", claimAPI+"resourceslices", nil, &list)
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Spec.Devices) != 1 {
			return false, fmt.Sprint(list, err)
		}
		device := list.Items[0].Spec.Devices[0]
		return device.AllowMultipleAllocations && device.Capacity["egressBandwidth"].Value == want, device
	})
}

// claim is what tests want to know of a ResourceClaim.
type claim struct {
	Metadata struct{ UID string }
	Status   struct {
		Devices []struct {
			Conditions []condition
			Data       object
		}
	}
}

// claimOf returns the claim of a pod.
func (c *cluster) claimOf(pod string) (name string, found claim, err error) {
	p, err := c.pod(pod)
	if err == nil && len(p.Status.ResourceClaimStatuses) != 1 {
		err = errors.New("it has no claim")
	}
	if err != nil {
		return "", claim{}, err
	}
	name = p.Status.ResourceClaimStatuses[0].ResourceClaimName
	return name, found, c.do("GET", claimAPI+inShop+"resourceclaims/"+name, nil, &found)
}

// awaitGuaranteed waits until the claim of a pod has a condition.
func (c *cluster) awaitGuaranteed(pod, status, reason string) (found condition) {
	c.t.Helper()
	c.await(fmt.Sprintf("the claim of %s is %s: %s", pod, status, reason), func() (bool, any) {
		_, got, err := c.claimOf(pod)
		if err != nil || len(got.Status.Devices) != 1 || len(got.Status.Devices[0].Conditions) != 1 {
			return false, fmt.Sprint(got, err)
		}
		found = got.Status.Devices[0].Conditions[0]
		return found.Type == "Guaranteed" && found.Status == status && found.Reason == reason, found
	})
	return found
}

// netnsOf returns the network namespace of a pod that kubelet started.
func (c *cluster) netnsOf(name string) string {
	c.t.Helper()
	var list struct{ Items []struct{ ID string } }
	_, err := c.runtime.call("ListPodSandbox", object{"filter": object{
		"labelSelector": object{"io.kubernetes.pod.name": name}, "state": object{"state": "SANDBOX_READY"},
	}}, &list)
	if err != nil || len(list.Items) != 1 {
		c.t.Fatalf("sandboxes of %s: %v, %v", name, list, err)
	}
	path, err := c.runtime.netnsOf(list.Items[0].ID)
	must.Succeed(c.t, err)
	return path
}
