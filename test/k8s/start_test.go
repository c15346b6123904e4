//go:build docker

package k8s

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/test/harness"
	"github.com/weir-project/weir/test/must"
)

// What Weir adds to a pod's start. Both benches interleave starts with and without it:
//
//	go test -tags docker -run '^$' -bench PodStart -benchtime 1x ./test/k8s

// durations are of starts of one kind.
type durations []time.Duration

// at returns a quantile in milliseconds.
func (d durations) at(quantile float64) float64 {
	slices.Sort(d)
	return d[min(int(quantile*float64(len(d))), len(d)-1)].Seconds() * 1e3
}

func report(b *testing.B, name string, d durations) {
	b.Logf("%s: %d starts: median %.2f ms, 99th percentile %.2f ms, at most %.2f ms", name, len(d), d.at(0.5), d.at(0.99), d.at(1))
	b.ReportMetric(d.at(0.5), name+"-p50-ms")
	b.ReportMetric(d.at(0.99), name+"-p99-ms")
}

// BenchmarkPodStartNRI starts 50 pods a second through NRI's own adaptation with weir-k8s and the agent, and between
// them 50 through one without plugins. A pod is a namespace of the bed, and ends half a second after its start.
func BenchmarkPodStartNRI(b *testing.B) {
	b.Run("default", func(b *testing.B) { benchmarkPodStartNRI(b) })
	b.Run("hard admission", func(b *testing.B) { benchmarkPodStartNRI(b, "--hard-admission") })
}

// benchmarkPodStartNRI gives weir-k8s the options.
func benchmarkPodStartNRI(b *testing.B, options ...string) {
	const (
		namespaces = 50
		pause      = 10 * time.Millisecond // between starts with and without Weir in turn
		starts     = 1000
	)
	b.Setenv("TMPDIR", "/dev/shm") // the agent's state file is in memory, as below /run
	bed := harness.NewBed(b, testbed.HostOptions{})
	var paths []string
	for i := range namespaces {
		paths = append(paths, bed.AddUnknown(fmt.Sprint("pod", i)).NetNSPath())
	}
	agent := bed.LaunchAgent(harness.AgentOptions{Rate: "1gbit"})
	with, socket := newAdaptation(b, bed.Dir, "with")
	without, _ := newAdaptation(b, bed.Dir, "without")
	plugin, err := testbed.StartProcess("weir-k8s", exec.Command(filepath.Join(filepath.Dir(harness.Program(b)), "weir-k8s"),
		append(options, "--socket", bed.Files.Socket(), "--nri", socket, "--kubelet", bed.Dir)...))
	must.Succeed(b, err)
	b.Cleanup(func() { must.Succeed(b, plugin.End(syscall.SIGTERM, noticed)) })
	bed.Await("weir-k8s is connected", noticed, func() (bool, string) {
		status, err := agent.Client.Status(b.Context())
		if err != nil {
			return false, err.Error()
		}
		for _, s := range status.Sources {
			if s.Name == "kubernetes" && s.Connected {
				return true, ""
			}
		}
		return false, plugin.LastWords()
	})
	sandbox := func(i int) *api.PodSandbox {
		return &api.PodSandbox{
			Id: fmt.Sprintf("%064d", i), Uid: fmt.Sprint("uid", i), Name: fmt.Sprint("pod", i), Namespace: "shop", Pid: 1,
			Annotations: map[string]string{"weir.dev/min": "1mbit", "weir.dev/weight": "200"},
			Linux:       &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: paths[i%namespaces]}}},
		}
	}
	took := map[*adaptation.Adaptation]*durations{with: {}, without: {}}
	for b.Loop() {
		tick := time.NewTicker(pause)
		for i := range starts {
			for _, a := range []*adaptation.Adaptation{with, without} {
				<-tick.C
				if old := i - namespaces/2; old >= 0 {
					must.Succeed(b, a.StopPodSandbox(b.Context(), &api.StopPodSandboxRequest{Pod: sandbox(old)}))
				}
				began := time.Now()
				must.Succeed(b, a.RunPodSandbox(b.Context(), &api.RunPodSandboxRequest{Pod: sandbox(i)}))
				*took[a] = append(*took[a], time.Since(began))
			}
			if i%100 == 0 { // outside of the measured time
				if c := agent.Container(fmt.Sprint("shop/pod", i)); !controlled(c) || c.Policy.Weight != 200 {
					b.Fatalf("pod %d is not under control when its start returns: %+v", i, c)
				}
			}
		}
		tick.Stop()
	}
	report(b, "weir", *took[with])
	report(b, "none", *took[without])
}

// newAdaptation returns NRI as a runtime has it, and its socket.
func newAdaptation(b *testing.B, dir, name string) (*adaptation.Adaptation, string) {
	socket, none := filepath.Join(dir, name+".sock"), filepath.Join(dir, "none")
	a, err := adaptation.New(name, "1",
		func(ctx context.Context, list adaptation.SyncCB) error { _, err := list(ctx, nil, nil); return err },
		func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none))
	must.Succeed(b, err)
	must.Succeed(b, a.Start())
	b.Cleanup(a.Stop)
	return a, socket
}

// BenchmarkPodStartContainerd starts pods in containerd, one after the other, in rounds with NRI and weir-k8s and rounds
// with NRI disabled.
func BenchmarkPodStartContainerd(b *testing.B) {
	const rounds, each = 6, 15
	n := newNode(b)
	n.startAgent()
	n.startPlugin()
	n.awaitPlugin()
	var with, without durations
	for b.Loop() {
		for round := range rounds {
			nri := round%2 == 0
			n.containerd.SetNRI(nri)
			must.Succeed(b, n.containerd.Kill())
			must.Succeed(b, n.containerd.Start(b.Context()))
			if nri {
				n.Await("weir-k8s is connected again", noticed, func() (bool, string) { return n.source().Connected, n.plugin.LastWords() })
				time.Sleep(time.Second) // it may be the connection of the round before
			}
			began := time.Now()
			for i := range each {
				p := n.run(b, fmt.Sprintf("pod%d-%d", round, i), podOptions{annotations: map[string]string{"weir.dev/weight": "200"}})
				if c, known := n.agent.Containers()[p.name]; known != nri || nri && !controlled(c) {
					b.Fatalf("with NRI %t the agent knows the pod %t, %+v", nri, known, c)
				}
				if nri {
					with = append(with, p.took)
				} else {
					without = append(without, p.took)
				}
				n.stop(b, p)
			}
			b.Logf("with NRI %t: %.1f starts and ends a second", nri, each/time.Since(began).Seconds())
		}
	}
	report(b, "weir", with)
	report(b, "none", without)
}
