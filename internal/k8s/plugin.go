// Package k8s is weir-k8s: a plugin of the container runtime's NRI (Node Resource Interface) that
// reports the pods of a Kubernetes node to Weir's agent.
//
// Problem: containers of a pod share a network, which the runtime makes; what the pod may send is in
// its annotations, and in claims that the scheduler counted; and all of that has to be in force before
// its first packet. The agent is no plugin itself: NRI's protocol (ttrpc, protobuf) is several times the
// megabyte that Kubernetes may cost those who do not have it.
//
// Method: NRI calls RunPodSandbox when a pod has its network and none of its containers runs, and
// waits for the answer. The plugin reports the pod to the agent over one long request (api/v1,
// PodsChange), and answers NRI when the agent has put it into force. Each side may be restarted at
// any time: NRI lists all pods to a plugin that registers, the plugin lists them to an agent that it
// connects to, and the agent saves them.
//
// NRI does not tell of changed annotations. weir-dra, which sees them at the API server, notes them in
// a file beside the claims.
//
// Containers without a pod (ctr, nerdctl) do not come through NRI, which containerd's CRI alone calls: containerd's own
// services tell of them (containerd.go).
//
// Limit: a plugin that is away is not asked; NRI's default validator can stop containers meanwhile.
package k8s

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	v1 "github.com/weir-project/weir/api/v1"
)

const (
	pluginName = "weir"
	// pluginIndex orders plugins; others come first, as they may change a pod.
	pluginIndex = "90"
	// runtimeInterval is the pause before another attempt to connect to the runtime. After
	// runtimePatience without one, what runs is not known any more.
	runtimeInterval = 500 * time.Millisecond
	runtimePatience = 5 * time.Second
)

// errOldAgent: without the answer a minimum may not be in force.
var errOldAgent = errors.New("the agent is older than weir-k8s and does not say whether minimums are in force: update and restart it, or start weir-k8s without --hard-admission")

// plugin implements the interfaces of NRI's stub that it has methods of. NRI calls them one at a
// time.
type plugin struct {
	reporter      *reporter
	hardAdmission bool
	// folder is weir-dra's, with its notes.
	folder string
	log    *slog.Logger
	// connected: the runtime has called since the last attempt to connect to it.
	connected atomic.Bool
}

// run is a plugin of the runtime that listens at an NRI socket until ctx ends.
func (p *plugin) run(ctx context.Context, socket string) {
	stayConnected(ctx, p.reporter, p.log, "not connected to NRI, so pods are not reported; trying again", func() (bool, error) {
		s, err := stub.New(p, stub.WithPluginName(pluginName), stub.WithPluginIdx(pluginIndex),
			stub.WithSocketPath(socket), stub.WithOnClose(func() {}), stub.WithLogger(stubLog{p.log}))
		if err == nil {
			err = s.Run(ctx)
		}
		return p.connected.Swap(false), explain(err, socket)
	})
}

// stayConnected connects to a runtime until ctx ends. The function connect returns when a connection has ended:
// whether the runtime has called or answered, and the error that ended the connection, which is logged once with the
// warning. After runtimePatience without a connection the reporter forgets what runs.
func stayConnected(ctx context.Context, r *reporter, log *slog.Logger, warning string, connect func() (bool, error)) {
	complaint, lostAt := "", time.Now()
	for ctx.Err() == nil {
		reached, err := connect()
		if ctx.Err() != nil {
			break
		}
		if reached {
			lostAt = time.Now()
		} else if time.Since(lostAt) > runtimePatience && r != nil {
			r.forgetRuntime(ctx)
		}
		if err != nil && complaint != err.Error() {
			complaint = err.Error()
			log.Warn(warning, "error", err)
		}
		select {
		case <-time.After(runtimeInterval):
		case <-ctx.Done():
		}
	}
}

// explain adds to an error of the connection to NRI what to do.
func explain(err error, socket string) error {
	switch {
	case err == nil:
		return errors.New("the runtime ended the connection")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("nothing answers on %s (%w): does the container runtime run? NRI takes containerd 2.0 or newer, whose configuration does not disable it: write `disable = false` below [plugins.'io.containerd.nri.v1.nri'] there, or give --nri, which without Kubernetes may be none", socket, err)
	}
	return err
}

// Configure is called first on a connection.
func (p *plugin) Configure(_ context.Context, _, runtime, version string) (api.EventMask, error) {
	p.connected.Store(true)
	p.log.Info("connected to NRI", "name", runtime, "version", version)
	return 0, nil
}

// Synchronize gets all pods that run when the plugin has registered.
func (p *plugin) Synchronize(ctx context.Context, sandboxes []*api.PodSandbox, containers []*api.Container) ([]*api.ContainerUpdate, error) {
	_ = p.checkNotes() // it is logged: pods that run go on
	p.ignore(p.reporter.replace(ctx, sandboxes, containers, p.notes))
	return nil, nil
}

// RunPodSandbox is called when a pod has its network, before its containers start. With hard
// admission its error stops the pod.
func (p *plugin) RunPodSandbox(ctx context.Context, s *api.PodSandbox) error {
	if err := p.checkNotes(); p.hardAdmission && err != nil {
		return refusal(s, v1.PodState{}, err)
	}
	state, err := p.reporter.update(ctx, func(b book) (v1.PodsChange, bool) {
		pod, runs := b.start(s, p.notes())
		return v1.PodsChange{Started: &pod, Admit: p.hardAdmission}, runs
	})
	if !p.hardAdmission {
		p.ignore(err)
		return nil
	}
	if err = refusal(s, state, err); err != nil {
		// NRI may have ended ctx and let the pod go on: unknown, it is checked at its first container.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), runtimePatience)
		defer cancel()
		p.ignore(p.stop(ctx, s))
	}
	return err
}

// CreateContainer is called before a pod has another container. With hard admission its error stops the first one
// of a pod that started while weir-k8s was not there; kubelet tries again. That pod's claims are read again: they may
// have been unreadable before.
func (p *plugin) CreateContainer(ctx context.Context, s *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	if !p.hardAdmission {
		return nil, nil, nil
	}
	var unreadable error // set before update returns without an error
	state, err := p.reporter.update(ctx, func(b book) (v1.PodsChange, bool) {
		pod := b[s.GetId()]
		if pod.unchecked {
			unreadable = p.checkNotes()
		}
		if !pod.unchecked || unreadable != nil {
			return v1.PodsChange{}, false
		}
		pod.Labels = p.notes().labels(pod.uid, pod.atStart)
		b[s.GetId()] = pod
		return v1.PodsChange{Started: &pod.Pod, Admit: true}, true
	})
	if err == nil {
		err = unreadable
	}
	return nil, nil, refusal(s, state, err)
}

// refusal returns why hard admission refuses a pod, given the agent's answer; nil if it does not.
func refusal(s *api.PodSandbox, state v1.PodState, err error) error {
	switch {
	case err != nil:
	case state.State == "": // there was nothing to ask
		return nil
	case state.MinimumInForce == nil:
		err = errOldAgent
	case *state.MinimumInForce:
		return nil
	default:
		err = errors.New(cmp.Or(state.Reason, "its minimum is not in force"))
	}
	return fmt.Errorf("weir: pod %s/%s is not admitted: %w", s.GetNamespace(), s.GetName(), err)
}

// checkNotes returns why what weir-dra has noted cannot be read, and logs that. Kubelet has had the claims of a
// pod prepared before it starts.
func (p *plugin) checkNotes() error {
	_, err := readNotes(p.folder)
	if err != nil {
		p.log.Warn("pods have neither minimums by claims nor changed annotations", "error", err)
	}
	return err
}

// notes returns what can be read of what weir-dra has noted. Called by the reporter's goroutine, it is not older than
// what the book has.
func (p *plugin) notes() notes {
	n, _ := readNotes(p.folder)
	return n
}

// PostCreateContainer is called when a pod has another container.
func (p *plugin) PostCreateContainer(ctx context.Context, _ *api.PodSandbox, c *api.Container) error {
	_, err := p.reporter.update(ctx, func(b book) (v1.PodsChange, bool) {
		pod, changed := b.addContainer(c)
		return v1.PodsChange{Started: &pod}, changed
	})
	p.ignore(err)
	return nil
}

// StopPodSandbox is called when the containers of a pod have ended.
func (p *plugin) StopPodSandbox(ctx context.Context, s *api.PodSandbox) error {
	p.ignore(p.stop(ctx, s))
	return nil
}

// RemovePodSandbox is called after StopPodSandbox, or in its place.
func (p *plugin) RemovePodSandbox(ctx context.Context, s *api.PodSandbox) error {
	return p.StopPodSandbox(ctx, s)
}

func (p *plugin) stop(ctx context.Context, s *api.PodSandbox) error {
	_, err := p.reporter.update(ctx, func(b book) (v1.PodsChange, bool) {
		return v1.PodsChange{Stopped: s.GetId()}, b.stop(s.GetId())
	})
	return err
}

// ignore notes an error that does not concern the runtime: the reporter reports all again.
func (p *plugin) ignore(err error) {
	if err != nil {
		p.log.Debug("the agent does not know yet", "error", err)
	}
}

// stubLog passes the log of NRI's stub on, as details.
type stubLog struct{ log *slog.Logger }

func (l stubLog) write(ctx context.Context, format string, args []any) {
	l.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}

func (l stubLog) Debugf(ctx context.Context, format string, args ...any) { l.write(ctx, format, args) }
func (l stubLog) Infof(ctx context.Context, format string, args ...any)  { l.write(ctx, format, args) }
func (l stubLog) Warnf(ctx context.Context, format string, args ...any)  { l.write(ctx, format, args) }
func (l stubLog) Errorf(ctx context.Context, format string, args ...any) { l.write(ctx, format, args) }
