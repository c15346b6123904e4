//go:build cluster

package k8s

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/must"
	"github.com/weir-project/weir/test/pki"
)

// TestInstall: with the shipped chart and image kubelet runs all of Weir on a node, a pod has the minimum that it
// claims, an upgrade loses no packet, and what pods have stays when Weir is taken away.
func TestInstall(t *testing.T) {
	const version = "1.2.3"
	out := t.TempDir()
	build := exec.Command("scripts/image.sh")
	build.Dir, build.Env = "../..", append(build.Environ(), "IMAGE=weir-kubernetes", "VERSION="+version, "OUT="+out)
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make the image: %v: %s", err, said)
	}
	archives, err := filepath.Glob(filepath.Join(out, "weir-kubernetes_*.tar"))
	if err != nil || len(archives) != 1 {
		t.Fatalf("images: %v, %v", archives, err)
	}
	checkAuthorities(t, archives[0])
	helmProgram(t)                                                // before all that takes long
	c := newCluster(t, clusterOptions{requiredPlugin: "90-weir"}) // without which Weir's own pod starts
	must.Succeed(t, c.containerd.Import("k8s.io", archives[0]))
	c.tag("weir-kubernetes:"+version, "weir-kubernetes:next")
	config := fmt.Sprintf(`config={"uplink": %q, "rate": "20mbit"}`, c.Host.UplinkName)
	authority := pki.New(t)
	agents, edge := authority.Server(t, "weir", c.Host.UplinkAddr().AsSlice()), authority.Client(t, "weir-edge", time.Now().Add(time.Hour))
	c.kubectl("-n", "kube-system", "create", "secret", "generic", "weir-agents",
		"--from-file=tls.crt="+agents.Certificate, "--from-file=tls.key="+agents.Key, "--from-file=ca.crt="+authority.Path)
	c.kubectl("-n", "shop", "create", "secret", "generic", "weir-edge-agents",
		"--from-file=edge.crt="+edge.Certificate, "--from-file=edge.key="+edge.Key, "--from-file=ca.crt="+authority.Path)
	c.helm("install", "--set", "image=weir-kubernetes:"+version, "--set", "annotations=true,metrics=true,listenSecret=weir-agents", "--set-json", config)
	c.awaitCapacity("19M")
	c.annotateNode(object{"weir.dev/rate": "16mbit"})
	c.awaitCapacity("15200k")
	c.annotateNode(object{"weir.dev/rate": nil})
	c.awaitCapacity("19M")
	c.await("the node exporter finds metrics", func() (bool, any) {
		text := c.Run(append(c.containerd.Enter(), "sh", "-c", "cat /run/weir-metrics/weir.prom || true")...)
		return strings.Contains(text, "weir_uplink_rate_bytes_per_second"), text
	})
	c.checkEdgePod(version)
	c.create("camera", podOptions{claim: "8M"})
	c.create("backup", podOptions{annotations: map[string]string{"weir.dev/weight": "5000"}})
	c.awaitRunning("camera")
	c.awaitRunning("backup")
	c.awaitGuaranteed("camera", "True", "InForce")
	c.checkMinimum()
	c.checkAllNodes("shop/camera")

	// The scheduler counts minimums by annotation, too.
	c.create("garage", podOptions{annotations: map[string]string{"weir.dev/min": "6.5mbit"}})
	c.awaitGuaranteed("garage", "True", "InForce")
	if garage, _ := c.pod("garage"); garage.Spec.NodeName != nodeName {
		t.Errorf("it is %+v", garage)
	}
	c.create("hall", podOptions{annotations: map[string]string{"weir.dev/min": "6.5mbit"}})
	t.Logf("hall is pending: %s", c.awaitPending("hall"))
	c.end("garage")
	c.awaitGuaranteed("hall", "True", "InForce")
	c.end("hall")
	for name, o := range map[string]podOptions{
		"porch": {kbps: "1000", annotations: map[string]string{"weir.dev/min": "1mbit"}}, // it has a request already
		"attic": {annotations: map[string]string{"weir.dev/min": "0mbit"}},               // there is no such template
	} {
		c.create(name, o)
		if p, err := c.pod(name); err != nil || len(p.Spec.ResourceClaims) != 0 {
			t.Errorf("%s claims %v (%v)", name, p.Spec.ResourceClaims, err)
		}
		c.end(name)
	}

	// An upgrade loses no packet of a pod, and no claim.
	replies := c.Host.Command(t.Context(), "nsenter", "--net="+c.netnsOf("camera"), "busybox", "ping", "-i", "0.01", "-w", "120", c.Host.PeerAddr.String())
	ping, err := testbed.StartProcess("ping", replies)
	must.Succeed(t, err)
	before := c.daemonPod()
	c.helm("upgrade", "--reset-then-reuse-values", "--set", "image=weir-kubernetes:next")
	c.await("the node has the new version", func() (bool, any) {
		now := c.daemonPod()
		return now != "" && now != before, now
	})
	c.awaitGuaranteed("camera", "True", "InForce")
	c.awaitCapacity("19M")
	must.Succeed(t, ping.End(syscall.SIGINT, noticed))
	said := ping.Said()
	answered := regexp.MustCompile(`seq=(\d+) `).FindAllStringSubmatch(said, -1)
	t.Logf("during the upgrade %d pings were answered", len(answered))
	for i, one := range answered {
		if one[1] != strconv.Itoa(i) { // the last one may be under way when ping ends
			t.Fatalf("ping %d was not answered: %s", i, said)
		}
	}
	if len(answered) < 100 {
		t.Errorf("ping says %s", said)
	}
	c.checkMinimum()

	// What is in the kernel stays when Weir is taken away.
	c.helm("uninstall")
	c.await("its pod is gone", func() (bool, any) {
		left := c.daemonPod()
		return left == "", left
	})
	c.checkMinimum()
	c.await("nothing is offered any more", func() (bool, any) {
		var list struct{ Items []any }
		err := c.do("GET", claimAPI+"resourceslices", nil, &list)
		return err == nil && len(list.Items) == 0, fmt.Sprint(list, err)
	})

	// Then nothing is left in the kernel, by what kubectl debug node runs.
	if before := c.queueing(); !strings.Contains(before, "htb") {
		t.Errorf("before weir down the uplink has %s", before)
	}
	tolerates := object{"tolerate-missing-plugins.noderesource.dev": "true"} // in place of another configuration of containerd
	c.must("POST", "/api/v1/namespaces/kube-system/pods", object{"metadata": object{"name": "down", "annotations": tolerates}, "spec": object{
		"nodeName": nodeName, "hostNetwork": true, "hostPID": true, "restartPolicy": "Never", "automountServiceAccountToken": false,
		"volumes": []object{{"name": "host", "hostPath": object{"path": "/"}}},
		"containers": []object{{
			"name": "down", "image": "weir-kubernetes:next", "command": []string{"weir", "down", "--state-dir", "/host/run/weir", "--socket", "/host/run/weir/weir.sock"},
			"securityContext": object{"privileged": true}, "volumeMounts": []object{{"name": "host", "mountPath": "/host"}},
		}},
	}}, nil)
	c.await("weir down has ended", func() (bool, any) {
		var p kubePod
		err := c.do("GET", "/api/v1/namespaces/kube-system/pods/down", nil, &p)
		return p.Status.Phase == "Succeeded", fmt.Sprint(p, err)
	})
	if after := c.queueing(); strings.Contains(after, "htb") {
		t.Errorf("after weir down the uplink has %s", after)
	}
}

// checkAuthorities: an image has this machine's certificates, by which weir-edge trusts registries. Its layer is not
// compressed.
func checkAuthorities(t *testing.T, archive string) {
	t.Helper()
	trusted, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
	must.Succeed(t, err)
	image, err := os.ReadFile(archive)
	must.Succeed(t, err)
	if !bytes.Contains(image, []byte("./etc/ssl/certs/ca-certificates.crt\x00")) || !bytes.Contains(image, trusted) {
		t.Errorf("%s has not the certificates of this machine", archive)
	}
}

// kubectl runs a command of kubectl.
func (c *cluster) kubectl(args ...string) {
	c.t.Helper()
	command := c.Host.Command(c.t.Context(), filepath.Join(c.programs, "kubectl"), append([]string{"--kubeconfig", c.file("admin.conf")}, args...)...)
	if said, err := command.CombinedOutput(); err != nil {
		c.t.Fatalf("kubectl %q: %v: %s", args, err, said)
	}
}

// agentsOfNodes is how the guide has agents count users.
var agentsOfNodes = regexp.MustCompile(`(?s)--from-literal=edge.yaml='(.+?)'\n`)

// checkEdgePod: weir-edge runs in a pod of the shipped image, with the rights of the manifest, and agents of the DaemonSet count
// users for it.
func (c *cluster) checkEdgePod(version string) {
	c.t.Helper()
	guide, err := os.ReadFile("../../docs/kubernetes.md")
	must.Succeed(c.t, err)
	c.kubectl("-n", "shop", "create", "configmap", "weir-edge", "--from-literal=edge.yaml="+string(agentsOfNodes.FindSubmatch(guide)[1]))
	c.applyEdge(func(string) bool { return true }, "weir-kubernetes:latest", "weir-kubernetes:"+version)
	edge := func(args ...string) (string, error) {
		line := append([]string{"--kubeconfig", c.file("admin.conf"), "--namespace", "shop", "exec", "-i", "deployment/weir-edge", "--", "weir-edge"}, args...)
		command := c.Host.Command(c.t.Context(), filepath.Join(c.programs, "kubectl"), line...)
		command.Stdin = strings.NewReader(`{"par": {"serviceName": "page", "imageName": "` + testbed.PodImage + `"}}`)
		said, err := command.CombinedOutput()
		return string(said), err
	}
	c.await("weir-edge knows the node", func() (bool, any) {
		said, err := edge("nodes")
		return err == nil && strings.Contains(said, nodeName), said
	})
	said, err := edge("deploy", "--wait", "-")
	if err != nil {
		c.t.Errorf("weir-edge deploy: %v: %s", err, said)
	}
	if strings.Contains(said, "users") {
		c.t.Errorf("weir-edge deploy says %s", said)
	}
	c.await("users are counted", func() (bool, any) {
		said, err := edge("explain", "page")
		return err == nil && strings.Contains(said, "0 users"), said
	})
	if said, err = edge("down", "--all", "--kubernetes", "pod"); err == nil || !strings.Contains(said, "kubectl -n shop delete configmaps") {
		c.t.Errorf("weir-edge down in its own pod: %v: %s", err, said)
	}
	// What it says, and the guide: without rights of weir-edge, as kubectl does it.
	c.must("DELETE", deploymentsInShop+"/weir-edge?propagationPolicy=Foreground", nil, nil)
	awaitGone := func(what, prefix string) {
		c.await(what, func() (bool, any) {
			var found struct{ Items []named }
			c.must("GET", deploymentsInShop, nil, &found)
			return !slices.ContainsFunc(found.Items, func(d named) bool { return strings.HasPrefix(d.Metadata.Name, prefix) }), found
		})
	}
	awaitGone("weir-edge is gone", "weir-edge")
	c.must("DELETE", mapsInShop+"?labelSelector=weir-edge.role", nil, nil)
	awaitGone("what it has made is gone", "edge-page")
}

// queueing returns the qdiscs of the uplink.
func (c *cluster) queueing() string {
	c.t.Helper()
	return c.Run("tc", "qdisc", "show", "dev", c.Host.UplinkName)
}

// TestHelm: the chart has no faults that Helm finds, and is with its default values what the manifests are.
func TestHelm(t *testing.T) {
	helm := func(args ...string) string {
		said, err := exec.Command(helmProgram(t), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v: %s", strings.Join(args, " "), err, said)
		}
		return string(said)
	}
	helm("lint", "--strict", chart)
	objects := func(text string) map[string]any {
		found := map[string]any{}
		for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
			var o object
			if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
				return found
			} else if err != nil {
				t.Fatal(err)
			}
			if o == nil {
				continue
			}
			if o["kind"] == "DaemonSet" { // Helm's pods start again when the configuration changes
				annotations, _ := o["spec"].(object)["template"].(object)["metadata"].(object)["annotations"].(object)
				delete(annotations, "checksum/config")
			}
			found[fmt.Sprint(o["kind"], " ", o["metadata"].(object)["name"])] = o
		}
	}
	var manifests string
	for _, name := range []string{"weir.yaml", "weir-annotations.yaml"} {
		text, err := os.ReadFile("../../packaging/kubernetes/" + name)
		must.Succeed(t, err)
		manifests += "---\n" + string(text)
	}
	want, got := objects(manifests), objects(helm("template", "weir", chart, "--set", "annotations=true"))
	if len(want) < 15 || !reflect.DeepEqual(want, got) {
		t.Errorf("the chart has\n%v\nthe manifests have\n%v", got, want)
	}
	for name := range objects(helm("template", "weir", chart)) {
		if strings.HasSuffix(name, " weir-templates") {
			t.Errorf("%s is made without annotations=true", name)
		}
	}

	// Values of users: another folder of kubelet, without weir-dra, on some nodes.
	const kubelet = "/var/snap/microk8s/common/var/lib/kubelet"
	rendered := helm("template", "weir", chart, "--set", "kubelet="+kubelet+",containerd=none,hardAdmission=true,claims=false,metrics=true,image=registry.example.com/weir:1@sha256:ab",
		"--set-json", `nodeSelector={"edge": "true"}`, "--set-json", "tolerations=[]", "--set-json", `imagePullSecrets=[{"name": "registry"}]`,
		"--set-json", `resources={"agent": {"limits": {"memory": "64Mi"}}}`, "--set-json", `config={"uplinks": [{"interface": "eth0", "rate": "1gbit"}]}`)
	if n := strings.Count(rendered, kubelet); n < 4 || n != strings.Count(rendered, "/var/lib/kubelet") {
		t.Errorf("another folder of kubelet is not everywhere in %s", rendered)
	}
	made := objects(rendered)
	if names := slices.Sorted(maps.Keys(made)); !slices.Equal(names, []string{"ConfigMap weir", "DaemonSet weir", "DaemonSet weir-metrics", "ServiceAccount weir"}) {
		t.Errorf("without weir-dra there are %q", names)
	}
	for name, of := range map[string][]string{"DaemonSet weir": {"agent", "pods"}, "DaemonSet weir-metrics": {"metrics"}} {
		pod := made[name].(object)["spec"].(object)["template"].(object)["spec"].(object)
		var containers []string
		for _, one := range pod["containers"].([]any) {
			c := one.(object)
			containers = append(containers, c["name"].(string))
			if c["image"] != "registry.example.com/weir:1@sha256:ab" {
				t.Errorf("%s runs %s", name, c["image"])
			}
			switch limited := fmt.Sprint(c["resources"]); {
			case c["name"] == "agent" && limited != "map[limits:map[memory:64Mi]]", c["name"] != "agent" && c["resources"] != nil:
				t.Errorf("%s may use %s", c["name"], limited)
			case c["name"] == "pods" && fmt.Sprint(c["command"]) != "[weir-k8s --kubelet="+kubelet+" --containerd=none --hard-admission]":
				t.Errorf("pods is %v", c["command"])
			}
		}
		if !slices.Equal(containers, of) || fmt.Sprint(pod["nodeSelector"], pod["tolerations"], pod["imagePullSecrets"]) != "map[edge:true] [] [map[name:registry]]" {
			t.Errorf("%s is %v", name, pod)
		}
	}
	if text := fmt.Sprint(made["ConfigMap weir"]); !strings.Contains(text, "rate: 1gbit") {
		t.Errorf("the configuration is %s", text)
	}

	// Older API servers, whose devices are not counted or which have none.
	for version, has := range map[string][2]bool{"1.33.1": {false, true}, "1.35.0": {true, true}, "1.36.0": {true, false}} {
		made := objects(helm("template", "weir", chart, "--kube-version", version))
		if has != [2]bool{made["DeviceClass bandwidth.weir.dev"] != nil, made["ClusterRole weir-nodes"] != nil} || made["ClusterRole weir"] == nil {
			t.Errorf("for %s there are %q", version, slices.Sorted(maps.Keys(made)))
		}
	}
	said, err := exec.Command(helmProgram(t), "template", "weir", chart, "--set", "listenSecret=weir-agents,config.listen.address=0.0.0.0:7481").CombinedOutput()
	if err == nil || !strings.Contains(string(said), "leave out listenSecret, or config.listen") {
		t.Errorf("two addresses to listen at: %v: %s", err, said)
	}
	for _, wrong := range []string{"containerd=containerd.sock", "kubletFolder=/x", "kubelet=/var/lib/kubelet/", "claims=false,annotations=true", "hardAdmission=maybe", "resources.dra.x=1"} {
		if said, err := exec.Command(helmProgram(t), "template", "weir", chart, "--set", wrong).CombinedOutput(); err == nil {
			t.Errorf("%s is accepted: %s", wrong, said)
		}
	}
}

const chart = "../../packaging/kubernetes/chart"

// helmProgram returns the path of Helm.
func helmProgram(t testing.TB) string {
	t.Helper()
	program, err := filepath.Abs("../../bin/helm")
	must.Succeed(t, err)
	if _, err := os.Stat(program); err != nil {
		t.Skip("no Helm: make bin/helm")
	}
	return program
}

// helm runs a command of Helm on the release weir.
func (c *cluster) helm(command string, args ...string) {
	c.t.Helper()
	line := []string{helmProgram(c.t), command, "weir"}
	if command != "uninstall" {
		line = append(line, chart)
	}
	line = append(line, "--namespace", "kube-system", "--kubeconfig", c.file("admin.conf"))
	said, err := c.Host.Command(c.t.Context(), line[0], append(line[1:], args...)...).CombinedOutput()
	if err != nil {
		c.t.Fatalf("helm %s: %v: %s", command, err, said)
	}
}

// tag gives an image of the node a second name.
func (c *cluster) tag(image, name string) {
	c.t.Helper()
	c.Run(append(c.containerd.Enter(), "ctr", "--address", c.containerd.Socket(), "--namespace", "k8s.io", "images", "tag",
		"docker.io/library/"+image, "docker.io/library/"+name)...)
}

// daemonPod returns the UID of the pod of Weir that runs on the node; "" if none runs.
func (c *cluster) daemonPod() (uid string) {
	c.t.Helper()
	var list struct{ Items []kubePod }
	c.must("GET", "/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dweir", nil, &list)
	for _, p := range list.Items {
		if p.Status.Phase == "Running" {
			uid = p.Metadata.UID
		}
	}
	return uid
}
