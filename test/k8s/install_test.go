//go:build cluster

package k8s

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/test/must"
)

// TestInstall: with the shipped manifest and image kubelet runs all of Weir on a node, and a pod has the
// minimum that it claims.
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
	c := newCluster(t)
	must.Succeed(t, c.containerd.Import(archives[0]))
	for _, d := range append(c.manifest("weir.yaml"), c.manifest("weir-annotations.yaml")...) {
		d.text = strings.ReplaceAll(d.text, "weir-kubernetes:latest", "weir-kubernetes:"+version)
		d.text = strings.ReplaceAll(d.text, "uplink: auto", fmt.Sprintf("{uplink: %s, rate: 20mbit}", c.Host.UplinkName))
		c.apply(d)
	}
	c.awaitCapacity("19M")
	c.create("camera", podOptions{claim: "8M"})
	c.create("backup", podOptions{annotations: map[string]string{"weir.dev/weight": "5000"}})
	c.awaitRunning("camera")
	c.awaitRunning("backup")
	c.awaitGuaranteed("camera", "True", "InForce")
	c.checkMinimum()

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

	// What is in the kernel stays when Weir is taken away.
	c.must("DELETE", "/apis/apps/v1/namespaces/kube-system/daemonsets/weir?propagationPolicy=Foreground", nil, nil)
	c.await("its pod is gone", func() (bool, any) {
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		err := c.do("GET", "/api/v1/namespaces/kube-system/pods?labelSelector=app%3Dweir", nil, &list)
		return err == nil && len(list.Items) == 0, fmt.Sprint(list, err)
	})
	c.checkMinimum()
	c.await("nothing is offered any more", func() (bool, any) {
		var list struct{ Items []any }
		err := c.do("GET", claimAPI+"resourceslices", nil, &list)
		return err == nil && len(list.Items) == 0, fmt.Sprint(list, err)
	})
}
