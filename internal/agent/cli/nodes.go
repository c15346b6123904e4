package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// The agents of a Kubernetes cluster are asked through kubectl, by `weir ps` in their pods: with the
// user's login, contexts and proxies, whatever they are, and without a client of Kubernetes in weir.
// Agents need not listen on the network for it.

const (
	agentSelector  = "app=weir" // of the DaemonSet in packaging/kubernetes/weir.yaml
	agentContainer = "agent"
	// nodesAtOnce limits how many nodes are asked at a time: a kubectl takes 50 MB.
	nodesAtOnce = 8
	// nodeTimeout is how long a node may take. Its agent answers in milliseconds; a login may take seconds.
	nodeTimeout = 10 * time.Second
	// maxAnswerBytes bounds a node's answer, of thousands of containers, and maxErrorBytes what kubectl says of an error.
	maxAnswerBytes, maxErrorBytes = 32 << 20, 64 << 10
)

// clusterFlags select the agents of a cluster in place of one.
type clusterFlags struct {
	allNodes  bool
	namespace string
	timeout   time.Duration
}

func addClusterFlags(cmd *cobra.Command) *clusterFlags {
	c := &clusterFlags{timeout: nodeTimeout}
	cmd.Flags().BoolVar(&c.allNodes, "all-nodes", false, "ask the agents of all nodes of a Kubernetes cluster that have an agent's pod, by kubectl and its present context")
	cmd.Flags().StringVarP(&c.namespace, "namespace", "n", "kube-system", "with --all-nodes: namespace of the agents' pods")
	return c
}

// check returns an error of how the command was called.
func (c *clusterFlags) check(cmd *cobra.Command, args []string) error {
	if !c.allNodes {
		if cmd.Flags().Changed("namespace") {
			return cmdline.Usagef("--namespace is for agents on Kubernetes: add --all-nodes")
		}
		return nil
	}
	if len(args) > 0 {
		return cmdline.Usagef("--all-nodes lists all containers: omit %q, or leave out --all-nodes", args[0])
	}
	for _, other := range []string{"socket", "remote", "token-file", "ca", "cert", "key"} {
		if cmd.Flags().Changed(other) {
			return cmdline.Usagef("--%s selects one agent, --all-nodes those of a cluster: give one of both", other)
		}
	}
	return nil
}

// nodeContainer is a container of a node of the cluster.
type nodeContainer struct {
	node      string
	container v1.Container
}

// MarshalJSON returns the container with its node as one more field.
func (c nodeContainer) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Node string `json:"node"`
		v1.Container
	}{c.node, c.container})
}

// list returns the containers of all nodes with an agent's pod, sorted by node. The error names the nodes that are
// missing, and why; the others are returned all the same. The list is nil if there are no nodes.
func (c *clusterFlags) list(ctx context.Context) ([]nodeContainer, error) {
	pods, err := c.agents(ctx)
	if err != nil {
		return nil, err
	}
	answers := make([][]v1.Container, len(pods))
	failures := make([]error, len(pods))
	var queries errgroup.Group
	queries.SetLimit(nodesAtOnce)
	for i, pod := range pods {
		queries.Go(func() error {
			answers[i], failures[i] = c.queryNode(ctx, pod)
			return nil
		})
	}
	_ = queries.Wait() // failures has the errors
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	containers := []nodeContainer{}
	nodesByFailure, missing := map[string][]string{}, 0
	for i, pod := range pods {
		for _, container := range answers[i] {
			containers = append(containers, nodeContainer{pod.node(), container})
		}
		if err := failures[i]; err != nil {
			nodesByFailure[err.Error()] = append(nodesByFailure[err.Error()], pod.node())
			missing++
		}
	}
	if missing == 0 {
		return containers, nil
	}
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(nodesByFailure)) {
		lines = append(lines, fmt.Sprintf("  %s: %s", strings.Join(nodesByFailure[reason], ", "), reason))
	}
	return containers, fmt.Errorf("%d of %s did not answer:\n%s", missing, cmdline.Counted(len(pods), "node"), strings.Join(lines, "\n"))
}

// agentPod is what kubectl says of an agent's pod.
type agentPod struct {
	Metadata struct {
		Name              string
		DeletionTimestamp string
	}
	Spec   struct{ NodeName string }
	Status struct {
		Phase             string
		ContainerStatuses []struct {
			Name  string
			State struct {
				Running             *struct{}
				Waiting, Terminated struct{ Reason string }
			}
		}
	}
}

// node returns the node of the pod; one that the scheduler has found no node for stands for itself.
func (p *agentPod) node() string { return cmp.Or(p.Spec.NodeName, "(pod "+p.Metadata.Name+")") }

// whyNotRunning returns why the pod has no agent that runs; "" if it has.
func (p *agentPod) whyNotRunning() string {
	for _, container := range p.Status.ContainerStatuses {
		if state := container.State; container.Name == agentContainer && state.Running == nil {
			return cmp.Or(state.Waiting.Reason, state.Terminated.Reason, p.Status.Phase)
		}
	}
	if p.Status.Phase != "Running" {
		return p.Status.Phase
	}
	return ""
}

// agents returns one pod for each node that has any.
func (c *clusterFlags) agents(ctx context.Context) ([]agentPod, error) {
	text, err := c.run(ctx, "get", "pods", "--selector", agentSelector, "--output", "json")
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("find the agents' pods: %w", err)
	}
	var list struct{ Items []agentPod }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read kubectl's list of pods: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("namespace %s has no pods with the label %s: name the namespace of Weir's DaemonSet with --namespace, and check the cluster with kubectl config current-context", c.namespace, agentSelector)
	}
	// While a DaemonSet is upgraded a node may have one pod that ends and one that starts.
	slices.SortFunc(list.Items, func(a, b agentPod) int {
		return cmp.Or(cmp.Compare(a.node(), b.node()), cmp.Compare(a.whyNotRunning(), b.whyNotRunning()), cmp.Compare(a.Metadata.DeletionTimestamp, b.Metadata.DeletionTimestamp))
	})
	return slices.CompactFunc(list.Items, func(a, b agentPod) bool { return a.node() == b.node() }), nil
}

// queryNode returns what `weir ps` says in an agent's pod.
func (c *clusterFlags) queryNode(ctx context.Context, pod agentPod) (containers []v1.Container, err error) {
	name := pod.Metadata.Name
	switch why := pod.whyNotRunning(); why {
	case "":
	case "CrashLoopBackOff":
		return nil, fmt.Errorf("its agent ends again and again: see kubectl -n %s logs %s -c %s --previous", c.namespace, name, agentContainer)
	default:
		return nil, fmt.Errorf("its agent does not run (%s): see kubectl -n %s describe pod %s", why, c.namespace, name)
	}
	text, err := c.run(ctx, "exec", name, "--container", agentContainer, "--", "weir", "ps", "--output", "json")
	switch {
	case err == nil:
	case strings.Contains(err.Error(), client.ErrNoAgent.Error()):
		return nil, fmt.Errorf("its agent has no socket yet: see kubectl -n %s logs %s -c %s", c.namespace, name, agentContainer)
	case errors.Is(err, errNoAnswer), strings.Contains(err.Error(), "container not found"):
		return nil, fmt.Errorf("%w: see kubectl -n %s describe pod %s", err, c.namespace, name)
	default:
		return nil, err
	}
	if err := json.Unmarshal(text, &containers); err != nil {
		return nil, fmt.Errorf("another version of weir runs there, whose answer this one cannot read: %w", err)
	}
	return containers, nil
}

var (
	errNoAnswer = errors.New("no answer")
	errTooLong  = errors.New("answer too long")
)

// boundedText keeps what is written to it up to a limit.
type boundedText struct {
	text  []byte
	limit int
	isCut bool
}

func (b *boundedText) Write(p []byte) (int, error) {
	if b.isCut = b.isCut || len(b.text)+len(p) > b.limit; b.isCut {
		return 0, errTooLong
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// run returns what kubectl prints.
func (c *clusterFlags) run(ctx context.Context, words ...string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	kubectl := exec.CommandContext(limited, "kubectl", append([]string{"--namespace", c.namespace}, words...)...)
	kubectl.WaitDelay = time.Second // what it has started may hold its output open
	printed, said := boundedText{limit: maxAnswerBytes}, boundedText{limit: maxErrorBytes}
	kubectl.Stdout, kubectl.Stderr = &printed, &said
	err := kubectl.Run()
	switch {
	case printed.isCut || said.isCut:
		return nil, errTooLong
	case err == nil:
		return printed.text, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("--all-nodes runs kubectl, which is not in PATH: install it, or run weir where it is")
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("%w within %v", errNoAnswer, c.timeout)
	}
	return nil, errors.New(c.reason(string(said.text), err))
}

// kubectlNoise are lines of its log, which repeat its last line, and the exit code of weir in the pod.
var kubectlNoise = regexp.MustCompile(`^([IWEF]\d{4} |command terminated with exit code)`)

// reason returns why kubectl failed, and what to do.
func (c *clusterFlags) reason(said string, err error) string {
	var lines []string
	for line := range strings.Lines(said) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "weir: ")
		if line != "" && !kubectlNoise.MatchString(line) {
			lines = append(lines, line)
		}
	}
	why := cmp.Or(strings.Join(lines, "; "), err.Error())
	switch {
	case strings.Contains(why, "is forbidden") && strings.Contains(why, `resource "pods/exec"`):
		return fmt.Sprintf("you may not run commands in the agents' pods: that takes the verbs get and create for pods/exec in namespace %s", c.namespace)
	case strings.Contains(why, "is forbidden"):
		return fmt.Sprintf("%s; weir takes the verbs get and list for pods, get and create for pods/exec in namespace %s", why, c.namespace)
	case strings.Contains(why, "localhost:8080"): // what kubectl tries without a configuration
		return "kubectl knows no cluster: name its file with KUBECONFIG=FILE (with sudo, root's is meant), or see kubectl config get-contexts"
	}
	return why
}
