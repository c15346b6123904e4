package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/test/must"
)

// kubectl puts a program of that name in PATH, and the list of pods that it prints beside it. test/k8s asks a
// cluster.
func kubectl(t *testing.T, pods, script string) {
	t.Helper()
	folder := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "pods"), []byte(pods), 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "kubectl"), []byte("#!/bin/sh\npods="+folder+"/pods\n"+script), 0o755))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

const somePods = `{"items": [
	{"metadata": {"name": "weir-c"}, "spec": {"nodeName": "cellar"}, "status": {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}]}},
	{"metadata": {"name": "weir-a2"}, "spec": {"nodeName": "attic"}, "status": {"phase": "Pending"}},
	{"metadata": {"name": "weir-a", "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"nodeName": "attic"}, "status": {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}}, {"name": "pods", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}},
	{"metadata": {"name": "weir-s"}, "spec": {"nodeName": "shed"}, "status": {"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]}},
	{"metadata": {"name": "weir-o"}, "spec": {"nodeName": "oven"}, "status": {"phase": "Running"}},
	{"metadata": {"name": "weir-q"}, "spec": {"nodeName": "quarry"}, "status": {"phase": "Running"}},
	{"metadata": {"name": "weir-r"}, "spec": {"nodeName": "roof"}, "status": {"phase": "Running"}},
	{"metadata": {"name": "weir-p"}, "status": {"phase": "Pending"}}
]}`

const someAnswers = `case "$*" in
"--namespace weir get pods --selector app=weir --output json") cat "$pods" ;;
"--namespace weir exec weir-"[ac]" --container agent -- weir ps --output json")
	printf '[{"id": "1", "name": "shop/%s", "runtime": "kubernetes", "mode": "bridge", "state": "ok", "policy": {"weight": 100}, "shares": [{"uplink": "eth0", "entitled_bps": 20000000}]}]' "$4" ;;
*" exec weir-o "*) echo 'NAME  MODE' ;;
*" exec weir-r "*) echo 'unable to upgrade connection: container not found ("agent")' >&2; exit 1 ;;
*" exec weir-q "*)
	echo 'weir: no weir agent is running on /run/weir/weir.sock' >&2
	echo 'command terminated with exit code 1' >&2
	exit 1 ;;
*) echo "unexpected: $*" >&2; exit 1 ;;
esac`

func TestPsAllNodes(t *testing.T) {
	kubectl(t, somePods, someAnswers)
	const missing = `weir: 5 of 7 nodes did not answer:
  oven: another version of weir runs there, whose answer this one cannot read: invalid character 'N' looking for beginning of value
  (pod weir-p): its agent does not run (Pending): see kubectl -n weir describe pod weir-p
  shed: its agent ends again and again: see kubectl -n weir logs weir-s -c agent --previous
  quarry: its agent has no socket yet: see kubectl -n weir logs weir-q -c agent
  roof: unable to upgrade connection: container not found ("agent"): see kubectl -n weir describe pod weir-r
`
	code, stdout, stderr := run("-n", "weir", "ps", "--all-nodes")
	if code != cmdline.Failed || stderr != missing {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	compareGolden(t, "ps-all-nodes", stdout)

	code, stdout, stderr = run("ps", "--all-nodes", "--namespace=weir", "-o", "json")
	var containers []struct{ Node, Name string }
	must.Succeed(t, json.Unmarshal([]byte(stdout), &containers))
	if code != cmdline.Failed || stderr != missing || len(containers) != 2 || containers[1].Node != "cellar" || containers[1].Name != "shop/weir-c" {
		t.Errorf("exit code %d, %s, %+v", code, stderr, containers)
	}
}

// TestPsAllNodesFails: where kubectl cannot help, weir says what that takes.
func TestPsAllNodesFails(t *testing.T) {
	const one = `{"items": [{"metadata": {"name": "weir-c"}, "spec": {"nodeName": "cellar"}, "status": {"phase": "Running"}}]}`
	for name, tc := range map[string]struct{ script, want string }{
		"no pods":          {`echo '{"items": []}'`, "namespace kube-system has no pods with the label app=weir: name the namespace of Weir's DaemonSet with --namespace"},
		"no cluster":       {"echo 'E1126 22:00:00.000000 1 memcache.go:265] no' >&2\necho 'The connection to the server localhost:8080 was refused' >&2\nexit 1", "find the agents' pods: kubectl knows no cluster: name its file with KUBECONFIG=FILE"},
		"no right to list": {`echo 'Error from server (Forbidden): pods is forbidden: User "eve" cannot list' >&2; exit 1`, `User "eve" cannot list; weir takes the verbs get and list for pods, get and create for pods/exec in namespace kube-system`},
		"no right to exec": {`[ "$3" = get ] && exec cat "$pods"
echo 'error: unable to upgrade connection: pods "weir-c" is forbidden: User "eve" cannot create resource "pods/exec" in API group ""' >&2; exit 1`, "1 of 1 node did not answer:\n  cellar: you may not run commands in the agents' pods: that takes the verbs get and create for pods/exec in namespace kube-system\n"},
		"a long answer": {`[ "$3" = get ] && exec cat "$pods"
exec yes`, "1 of 1 node did not answer:\n  cellar: answer too long\n"},
		"a long error": {`exec yes >&2`, "find the agents' pods: answer too long"},
		"nonsense":     {`echo no`, "read kubectl's list of pods: "},
		"no reason":    {`exit 7`, "find the agents' pods: exit status 7"},
	} {
		t.Run(name, func(t *testing.T) {
			kubectl(t, one, tc.script)
			if code, _, stderr := run("ps", "--all-nodes"); code != cmdline.Failed || !strings.Contains(stderr, tc.want) {
				t.Errorf("exit code %d, %s", code, stderr)
			}
		})
	}
	t.Run("no answer", func(t *testing.T) {
		kubectl(t, one, "exec sleep 60")
		var pod agentPod
		pod.Metadata.Name, pod.Status.Phase = "weir-c", "Running"
		_, err := (&clusterFlags{namespace: "weir", timeout: 10 * time.Millisecond}).queryNode(t.Context(), pod)
		if err == nil || err.Error() != "no answer within 10ms: see kubectl -n weir describe pod weir-c" {
			t.Error(err)
		}
	})
	t.Run("no list", func(t *testing.T) {
		kubectl(t, one, "exec sleep 60")
		containers, err := (&clusterFlags{namespace: "weir", timeout: 10 * time.Millisecond}).list(t.Context())
		if containers != nil || err == nil || err.Error() != "find the agents' pods: no answer within 10ms" {
			t.Errorf("%v, %v", containers, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err = (&clusterFlags{namespace: "weir", timeout: time.Minute}).list(ctx); err == nil || err.Error() != context.DeadlineExceeded.Error() {
			t.Errorf("interrupted: %v", err)
		}
	})
	t.Run("no kubectl", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if code, _, stderr := run("ps", "--all-nodes"); code != cmdline.Failed || !strings.Contains(stderr, "runs kubectl, which is not in PATH") {
			t.Errorf("exit code %d, %s", code, stderr)
		}
	})
}

// TestManifestNames: the manifest has the label and the container that --all-nodes looks for.
func TestManifestNames(t *testing.T) {
	manifest, err := os.ReadFile("../../../packaging/kubernetes/weir.yaml")
	must.Succeed(t, err)
	label, value, _ := strings.Cut(agentSelector, "=")
	for _, want := range []string{"\n      labels: { " + label + ": " + value + " }\n", "\n        - name: " + agentContainer + "\n"} {
		if !strings.Contains(string(manifest), want) {
			t.Errorf("the manifest has no %q", want)
		}
	}
}
