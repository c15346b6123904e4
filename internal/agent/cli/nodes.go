package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
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
)

// clusterFlags select the agents of a cluster in place of one.
type clusterFlags struct {
	allNodes  bool
	namespace string
	timeout   time.Duration
}

func addClusterFlags(cmd *cobra.Command) *clusterFlags {
	c := &clusterFlags{timeout: nodeTimeout}
	cmd.Flags().BoolVar(&c.allNodes, "all-nodes", false, "ask the agents of all nodes of a Kubernetes cluster, by kubectl and its present context")
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

// list returns the containers of all nodes, and the node of each one, sorted by node. The error names the nodes
// that are missing, and why; the others are returned all the same, unless there are no nodes.
func (c *clusterFlags) list(ctx context.Context) (containers []v1.Container, nodes []string, err error) {
	pods, err := c.agents(ctx)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(pods, func(a, b agentPod) int { return cmp.Compare(a.node(), b.node()) })
	answers := make([][]v1.Container, len(pods))
	failures := make([]error, len(pods))
	var asked sync.WaitGroup
	free := make(chan struct{}, nodesAtOnce)
	for i, pod := range pods {
		free <- struct{}{}
		asked.Go(func() {
			defer func() { <-free }()
			answers[i], failures[i] = c.ask(ctx, pod)
		})
	}
	asked.Wait()
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	containers, nodes = []v1.Container{}, []string{}
	silent := map[string][]string{} // nodes by reason
	for i, pod := range pods {
		containers = append(containers, answers[i]...)
		nodes = append(nodes, slices.Repeat([]string{pod.node()}, len(answers[i]))...)
		if err := failures[i]; err != nil {
			silent[err.Error()] = append(silent[err.Error()], pod.node())
		}
	}
	if len(silent) == 0 {
		return containers, nodes, nil
	}
	missing := 0
	var lines []string
	for _, reason := range slices.Sorted(maps.Keys(silent)) {
		missing += len(silent[reason])
		lines = append(lines, fmt.Sprintf("  %s: %s", strings.Join(silent[reason], ", "), reason))
	}
	return containers, nodes, fmt.Errorf("%d of %s did not answer:\n%s", missing, cmdline.Counted(len(pods), "node"), strings.Join(lines, "\n"))
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

// idle returns why the pod has no agent that runs; "" if it has.
func (p *agentPod) idle() string {
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
		return cmp.Or(cmp.Compare(a.node(), b.node()), cmp.Compare(a.idle(), b.idle()), cmp.Compare(a.Metadata.DeletionTimestamp, b.Metadata.DeletionTimestamp))
	})
	return slices.CompactFunc(list.Items, func(a, b agentPod) bool { return a.node() == b.node() }), nil
}

// ask returns what `weir ps` says in an agent's pod.
func (c *clusterFlags) ask(ctx context.Context, pod agentPod) (containers []v1.Container, err error) {
	if why := pod.idle(); why != "" {
		return nil, fmt.Errorf("its agent does not run (%s): see kubectl -n %s describe pod %s", why, c.namespace, pod.Metadata.Name)
	}
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	text, err := c.run(limited, "exec", pod.Metadata.Name, "--container", agentContainer, "--", "weir", "ps", "--output", "json")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &containers); err != nil {
		return nil, fmt.Errorf("another version of weir runs there, whose answer this one cannot read: %w", err)
	}
	return containers, nil
}

// run returns what kubectl prints.
func (c *clusterFlags) run(ctx context.Context, words ...string) ([]byte, error) {
	kubectl := exec.CommandContext(ctx, "kubectl", append([]string{"--namespace", c.namespace}, words...)...)
	kubectl.WaitDelay = time.Second // what it has started may hold its output open
	var said bytes.Buffer
	kubectl.Stderr = &said
	text, err := kubectl.Output()
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("--all-nodes runs kubectl, which is not in PATH: install it, or run weir where it is")
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("no answer within %v", c.timeout)
	}
	return nil, errors.New(c.reason(said.String(), err))
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

// printNodes prints the containers of all nodes.
func printNodes(w io.Writer, containers []v1.Container, nodes []string, format cmdline.Output) error {
	if format != cmdline.JSON {
		return printTable(w, containers, nodes, format == cmdline.Wide)
	}
	type row struct {
		Node string `json:"node"`
		v1.Container
	}
	rows := make([]row, len(containers))
	for i, c := range containers {
		rows[i] = row{nodes[i], c}
	}
	return cmdline.PrintJSON(w, rows)
}
