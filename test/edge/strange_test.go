//go:build docker

package edge

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/api/v1/edge"
	"github.com/weir-project/weir/test/must"
)

// deployLasting deploys the service of testOtherFolder, which is to have run for long, and returns its
// instance.
func (s *site) deployLasting(t *testing.T) edge.Instance {
	t.Helper()
	must.Succeed(t, s.deploy(t, specification("lasting", pagesImage, 8086, 10, nil)))
	return s.awaitRunning(t, "lasting", 1, 15*time.Second)[0]
}

// testOtherFolder: a weir-edge with another state folder looks at an instance that has run for long, and
// does not end it.
func (s *site) testOtherFolder(t *testing.T, before edge.Instance) {
	time.Sleep(time.Until(before.StartedAt.Add(32 * time.Second)))
	second := s.launch(t, "--socket", filepath.Join(s.Dir, "second.sock"), "--state-dir", filepath.Join(s.Dir, "second"))
	failed := 0
	for range 60 {
		time.Sleep(100 * time.Millisecond)
		if s.get(8086) != nil {
			failed++
		}
	}
	second.kill()
	after := s.awaitRunning(t, "lasting", 1, 15*time.Second)
	if after[0].ContainerID != before.ContainerID || failed > 0 {
		t.Errorf("%d requests failed, the instance was %s and is %s", failed, before.ContainerID, after[0].ContainerID)
	}
	s.must(t, "rm", "lasting")
}

// testImageLabels: what an image says of itself makes its containers neither a proxy nor
// a ledger.
func (s *site) testImageLabels(t *testing.T) {
	docker := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("docker", append([]string{"-H", "unix://" + s.engine.Socket()}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("docker %s: %v: %s", args[0], err, out)
		}
	}
	empty := filepath.Join(s.Dir, "empty.tar")
	if err := os.WriteFile(empty, make([]byte, 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	docker("import", "-c", `LABEL weir-edge.service=evil weir-edge.role=proxy weir-edge.specification='{"par":{"serviceName":"evil","imageName":"`+pagesImage+`","maxUsers":1},"QoS":{"numUsers":5}}'`,
		"-c", `CMD ["/x"]`, empty, "example.test/innocent:1")
	docker("create", "--name", "edgeproxy-evil", "example.test/innocent:1")
	docker("import", "-c", "LABEL weir-edge.role=ledger weir-edge.version=18446744073709551615 weir-edge.promises=x", "-c", `CMD ["/x"]`, empty, "example.test/innocent:2")
	docker("create", "--name", "second-innocent", "example.test/innocent:2")
	defer docker("rm", "edgeproxy-evil", "second-innocent")
	if err := s.deploy(t, specification("honest", pagesImage, 8087, 10, nil)); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning(t, "honest", 1, 15*time.Second)
	if out := s.must(t, "ps"); strings.Contains(out, "evil") {
		t.Errorf("an image's labels were obeyed:\n%s", out)
	}
	s.must(t, "rm", "honest")
	if err := s.deploy(t, specification("copy", "example.test/innocent:1", 8088, 10, nil)); err == nil || !strings.Contains(err.Error(), "weir-edge.role") {
		t.Errorf("an image with weir-edge's labels: %v", err)
	}
}
