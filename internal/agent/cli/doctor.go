package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
	"github.com/weir-project/weir/internal/datapath/cgroup"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

func newDoctorCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check the features of this kernel and host, and whether guarantees are in force",
		Long: `Check which features this kernel and host have and, if an agent runs, whether all
guarantees are in force. Nothing is changed: trials take place in a temporary network
namespace. The exit code is 1 if Weir cannot run here.`,
		Args: cmdline.ExactArgs(),
	}
	format := cmdline.AddOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		findings := examine(cmd.Context(), *socket)
		var err error
		if *format == cmdline.JSON {
			err = cmdline.PrintJSON(cmd.OutOrStdout(), findings)
		} else {
			err = printFindings(cmd.OutOrStdout(), findings)
		}
		if err != nil {
			return err
		}
		return verdict(findings)
	}
	return cmd
}

// verdict returns an error if Weir cannot run.
func verdict(findings []finding) error {
	if slices.ContainsFunc(findings, func(f finding) bool { return f.Result == resultMissing }) {
		return cmdline.ErrSilent
	}
	return nil
}

// result is the outcome of one check.
type result string

const (
	resultOK result = "ok"
	// resultLimited: Weir runs with restrictions.
	resultLimited result = "limited"
	// resultMissing: Weir cannot run.
	resultMissing result = "missing"
)

type finding struct {
	Check  string `json:"check"`
	Result result `json:"result"`
	Detail string `json:"detail"`
}

// adder returns a function that appends the result of one check to a list: good if err is nil, bad
// otherwise.
func adder(findings *[]finding) func(check string, err error, otherwise result, good, bad string) {
	return func(check string, err error, otherwise result, good, bad string) {
		f := finding{Check: check, Result: resultOK, Detail: good}
		if err != nil {
			f.Result, f.Detail = otherwise, bad+": "+err.Error()
		}
		*findings = append(*findings, f)
	}
}

func examine(ctx context.Context, socket string) []finding {
	var findings []finding
	add := adder(&findings)
	if os.Geteuid() == 0 {
		add("privileges", nil, resultOK, "root", "")
	} else {
		add("privileges", errors.New("run sudo weir doctor"), resultMissing, "", "you are not root, and what the kernel can do was not checked")
	}
	release, err := kernel.Release()
	add("kernel", err, resultLimited, release, "unknown")
	if os.Geteuid() == 0 {
		findings = append(findings, examineKernel()...)
	}
	agent := client.Unix(socket)
	seen, err := agent.Snapshot(ctx)
	if root, failed := cgroup.FindRoot("/proc"); err == nil && failed == nil {
		seen.Status.Sources = addKubernetes(seen.Status.Sources, root)
	}
	findings = append(findings, examineEngines(seen.Status.Sources, err == nil)...)
	findings = append(findings, examineCNI(seen.Status.Sources, pods.BandwidthPlugin(pods.HostRoots()))...)
	add("published", proxied(kernel.ProxiedPorts("/proc")), resultLimited,
		"no port is published at one IPv6 address only, from which docker-proxy passes on", "what containers answer there is counted as the host's")
	add("volumes", networkMounts(), resultLimited,
		"no network file system is mounted", "what containers write there, the host sends (bound that by host: max)")
	findings = append(findings, examineAgent(seen, err)...)
	if node, err := agent.Node(ctx); err == nil && node.Measured.ResponsesReason != "" {
		add("responses", errors.New(node.Measured.ResponsesReason), resultLimited, "", "how long users of weir-edge's services wait is not measured")
	}
	return findings
}

// networkMounts returns an error that names the host's mounts of network filesystems; nil if there are
// none. In a container the agent's own are others than those of process 1.
func networkMounts() error {
	mounts, err := kernel.NetworkMounts("/proc/1/mountinfo")
	if err != nil || len(mounts) == 0 {
		return err
	}
	return errors.New(strings.Join(mounts, ", "))
}

// examineEngines checks the container engines: those that the agent watches, on the sockets that it
// was given, or without an agent those on the usual sockets.
func examineEngines(sources []v1.Source, asked bool) []finding {
	var findings []finding
	add := adder(&findings)
	for _, engine := range []struct{ name, socket string }{
		{"docker", config.DefaultDockerSocket}, {"podman", config.DefaultPodmanSocket}, {v1.RuntimeKubernetes, ""}, {v1.RuntimeContainerd, ""},
	} {
		if !asked && engine.socket != "" {
			add(engine.name, reachable(engine.socket), resultLimited, "answers on "+engine.socket, "no containers from there")
		}
		for _, s := range sources {
			if s.Name != engine.name {
				continue
			}
			var err error
			if !s.Connected {
				err = errors.New(s.Reason)
			}
			add(s.Name, err, resultLimited, "the agent watches it", "the agent has no containers from there")
		}
	}
	return findings
}

// addKubernetes returns the agent's sources with the one of pods, which an agent has once a weir-k8s has
// connected. The reason is for a host whose kubelet has cgroups below root.
func addKubernetes(sources []v1.Source, root string) []v1.Source {
	here, _ := filepath.Glob(filepath.Join(root, "kubepods*")) // no error: the pattern is a constant
	if len(here) == 0 || slices.ContainsFunc(sources, func(s v1.Source) bool { return s.Name == v1.RuntimeKubernetes }) {
		return sources
	}
	return append(slices.Clone(sources), v1.Source{Name: v1.RuntimeKubernetes, Reason: "weir-k8s, which kubelet's pods need, has not connected: " +
		"start it, and enable NRI in /etc/containerd/config.toml (containerd 2.0 or newer): `disable = false` below [plugins.'io.containerd.nri.v1.nri']"})
}

// examineCNI checks, on a node of Kubernetes, CNI's configuration: file has the bandwidth plugin, "" if none has.
func examineCNI(sources []v1.Source, file string) []finding {
	if !slices.ContainsFunc(sources, func(s v1.Source) bool { return s.Name == v1.RuntimeKubernetes }) {
		return nil
	}
	var findings []finding
	var err error
	if file != "" {
		err = fmt.Errorf("take the plugin bandwidth out of %s", file)
	}
	adder(&findings)("cni", err, resultLimited, "pods are limited by Weir alone", "CNI's bandwidth plugin also limits pods that have the annotations kubernetes.io/*-bandwidth")
	return findings
}

// examineAgent checks the running agent, from its answer or the error of asking.
func examineAgent(seen v1.Snapshot, err error) []finding {
	var findings []finding
	add := adder(&findings)
	status := seen.Status
	unavailable := "not running"
	asked := err == nil
	if asked && status.State != v1.StateOK {
		unavailable, err = fmt.Sprintf("weir %s does not share out all of %s as it should", status.Version, status.Uplink), errors.New(status.Reason)
	}
	add("agent", err, resultLimited, fmt.Sprintf("weir %s shares out %s", status.Version, status.Uplink), unavailable)
	if asked {
		add("policies", unkept(seen.Containers), resultLimited,
			"all that run have what they are promised", "not all that run have what they are promised")
	}
	if status.Classifier.Source != "" {
		add("classifier", nil, resultOK, describeClassifier(status.Classifier, time.Now()), "")
	}
	if len(status.Uplinks) > 0 {
		links, err := linksOf(status.Uplinks)
		add("tunnels", errors.Join(err, tunnels(links)), resultLimited,
			"no route leads through a device on top of an uplink that hides whose packets are", "what containers send through it is counted as the host's")
	}
	if receiving := slices.DeleteFunc(slices.Clone(status.Uplinks), func(u v1.Uplink) bool { return u.In == nil }); len(receiving) > 0 {
		links, err := linksOf(receiving)
		add("xdp", errors.Join(err, xdp(links)), resultLimited,
			"no program takes received packets off an uplink before they can be shared", "what such a program forwards or drops itself is neither shared nor counted")
		taken, cards, problem := offloads(links)
		findings = append(findings, examineOffload(taken, cards, errors.Join(err, problem)))
	}
	return findings
}

// examineKernel checks the features of the kernel. It needs root.
func examineKernel() []finding {
	var findings []finding
	add := adder(&findings)
	add("bpf", kernel.ProbeBPF(), resultMissing,
		"programs can tell containers apart", "no programs for traffic control (CONFIG_NET_CLS_BPF, CONFIG_BPF_SYSCALL)")
	findings = append(findings, examinePrograms(identity.ProbePrograms)...)
	add("tcx", kernel.ProbeTCX(), resultLimited,
		"programs attach with tcx", "before Linux 6.6; clsact is used instead")
	findings = append(findings, examineQdiscs(kernel.ProbeQdisc)...)
	add("direct", identity.ProbeDirect(), resultLimited,
		"packets bypass the classes while no packet waits", "all packets pass through the classes, at more processor time (before Linux 6.2, or CONFIG_DEBUG_INFO_BTF)")
	add("bridge", kernel.ProbeLink("veth"), resultLimited,
		"containers behind a bridge are controlled", "no containers behind a bridge (CONFIG_VETH; modprobe veth)")
	add("host", probeHostMode(), resultLimited,
		"containers in the host's network are controlled", "containers in the host's network are counted in the host class")
	for _, kind := range []string{"macvlan", "ipvlan"} {
		add(kind, kernel.ProbeLink(kind), resultLimited, kind+" containers are controlled",
			fmt.Sprintf("no %[1]s containers (CONFIG_%[2]s; modprobe %[1]s)", kind, strings.ToUpper(kind)))
	}
	add("overlay", kernel.ProbeLink("vxlan"), resultLimited,
		"containers of VXLAN overlays are controlled", "no overlay containers (CONFIG_VXLAN; modprobe vxlan)")
	add("incoming", kernel.ProbeRedirect(), resultLimited,
		"received traffic can be shared (--in-rate)", "received traffic cannot be shared")
	add("origin", identity.ProbeOrigins(), resultLimited,
		"what macvlan and ipvlan containers forward is theirs", "macvlan and ipvlan containers with CAP_NET_ADMIN can forward as the host, or as others (CONFIG_DEBUG_INFO_BTF, CONFIG_BPF_EVENTS)")
	add("delay", identity.ProbeDelays(), resultLimited,
		"waiting times are measured", "waiting times are not measured (CONFIG_DEBUG_INFO_BTF, CONFIG_BPF_EVENTS)")
	add("flows", identity.ProbeFlows(), resultLimited,
		"each flow gets the class of its application where weir.class is auto", "weir.class=auto is not in force, and what such containers send is served as be (it takes Linux 5.12, on arm64 5.18; without CONFIG_DEBUG_INFO_BTF 6.8)")
	return findings
}

// examineQdiscs checks the qdiscs that the scheduler is made of.
func examineQdiscs(probe func(kernel.Options) error) []finding {
	var findings []finding
	add := adder(&findings)
	add("htb", probe(kernel.HTB{DefaultMinor: 1}), resultMissing,
		"the scheduler is there", "no scheduler (CONFIG_NET_SCH_HTB; modprobe sch_htb)")
	add("tbf", probe(kernel.TBF{RateBytesPerSec: 1e6, Burst: 1e6, LimitBytes: 1e6}), resultMissing,
		"the link's bound is there", "no bound for the link (CONFIG_NET_SCH_TBF; modprobe sch_tbf)")
	add("fq_codel", probe(kernel.FqCodel{
		TargetMicroseconds: 5000, IntervalMicroseconds: 100_000, QuantumBytes: 1514, MemoryLimitBytes: 1 << 20}), resultLimited,
		"flows of one container are kept apart", "containers have short first-in first-out queues, from which tens of connections of one lose packets (modprobe sch_fq_codel, CONFIG_NET_SCH_FQ_CODEL)")
	return findings
}

// examinePrograms checks the programs that the agent loads.
func examinePrograms(probe func() (required, optional error)) []finding {
	var findings []finding
	add := adder(&findings)
	required, optional := probe()
	add("programs", required, resultMissing,
		"the programs that the agent needs load", "programs that the agent needs do not load (it takes Linux 5.12, on arm64 5.18; without CONFIG_DEBUG_INFO_BTF 6.8)")
	add("guards", optional, resultLimited,
		"programs for packet sockets, devices below uplinks, and transmit queues load",
		"without weir_bypass (CONFIG_CGROUP_BPF) packet sockets of host mode pass the queues, without weir_below VLANs and bonds are no uplinks, without weir_clear some devices take more processor time")
	return findings
}

// proxied returns an error that names the published ports served by docker-proxy, or nil.
func proxied(ports []kernel.ProxiedPort) error {
	if len(ports) == 0 {
		return nil
	}
	var names []string
	for _, p := range ports {
		names = append(names, fmt.Sprintf("%s of %s", p.Host, p.Container))
	}
	return fmt.Errorf("docker-proxy serves clients over IPv6 at %s: give the network IPv6, publish at all addresses or on an IPv4 address only, or set \"userland-proxy\": false",
		strings.Join(names, ", "))
}

// linksOf returns the devices of uplinks that are there; the state of others reports that already.
func linksOf(uplinks []v1.Uplink) ([]kernel.Link, error) {
	var links []kernel.Link
	for _, u := range uplinks {
		l, err := kernel.LinkByName(u.Name)
		if errors.Is(err, kernel.ErrNoLink) {
			continue
		}
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// tunnels returns an error that names the devices on top of uplinks that routes lead through, or nil.
func tunnels(uplinks []kernel.Link) error {
	var indexes []int
	for _, l := range uplinks {
		indexes = append(indexes, l.Index)
	}
	stacked, _, err := kernel.StackedOn(indexes)
	if err != nil {
		return err
	}
	return identity.TunnelProblem(identity.NotCarried(stacked))
}

// xdp returns an error that names the uplinks, and the devices below them, with an XDP program, or nil.
func xdp(uplinks []kernel.Link) error {
	names, err := lookBelow(uplinks, func(at kernel.Link, _ bool) ([]string, error) {
		if !at.XDP {
			return nil, nil
		}
		return []string{at.Name}, nil
	})
	if err != nil || names == nil {
		return err
	}
	return fmt.Errorf("an XDP program at %s (`ip link show` tells which)", strings.Join(names, ", "))
}

// examineOffload checks what takes packets off uplinks. A card with hw-tc-offload, which is the default of some drivers,
// takes only what rules and flow tables of others have it take.
func examineOffload(taken, cards []string, err error) finding {
	var findings []finding
	note := ""
	if len(cards) > 0 {
		off := make([]string, len(cards))
		for i, card := range cards {
			off[i] = "ethtool -K " + card + " hw-tc-offload off"
		}
		note = fmt.Sprintf("; hw-tc-offload is on, so rules and flow tables of other programs can be in the card, which takes what they forward (%s)", strings.Join(off, ", "))
	}
	if err == nil && len(taken) > 0 {
		err = errors.New(strings.Join(taken, ", ") + note)
	}
	adder(&findings)("offload", err, resultLimited,
		"no flow table, offloaded tc filter or leased queue takes received packets off an uplink before they can be shared"+note, "what is forwarded there is neither shared nor counted")
	return findings[0]
}

// offloads returns what takes packets off uplinks and the devices below them without a program, and the cards that
// could. A flow table in software at the uplink itself gets no packets that are shared.
func offloads(uplinks []kernel.Link) (taken, cards []string, err error) {
	taken, err = lookBelow(uplinks, func(at kernel.Link, below bool) ([]string, error) {
		found, err := kernel.FlowTables(at.Name, !below)
		filters, filterErr := kernel.OffloadedFilters(at.Index)
		found = append(found, filters...)
		for i := range found {
			found[i] += " at " + at.Name
		}
		card, cardErr := kernel.OffloadsTC(at.Name)
		if card && !slices.Contains(cards, at.Name) {
			cards = append(cards, at.Name)
		}
		leased, leaseErr := kernel.LeasedQueues(at.Index)
		if leased > 0 {
			found = append(found, fmt.Sprintf("%d leased queues of %s", leased, at.Name))
		}
		return found, errors.Join(err, filterErr, cardErr, leaseErr)
	})
	return taken, cards, err
}

// lookBelow returns what look finds at uplinks and at the devices below them, each once.
func lookBelow(uplinks []kernel.Link, look func(at kernel.Link, below bool) ([]string, error)) (found []string, err error) {
	for _, l := range uplinks {
		below, err := kernel.AllBelow(l.Index)
		if err != nil && !errors.Is(err, kernel.ErrNoLink) {
			return nil, err
		}
		for i, at := range append([]kernel.Link{l}, below...) {
			more, err := look(at, i > 0)
			if err != nil && !errors.Is(err, kernel.ErrNoLink) {
				return nil, err
			}
			for _, one := range more {
				if !slices.Contains(found, one) {
					found = append(found, one)
				}
			}
		}
	}
	return found, nil
}

// unkeptNames is the number of containers that unkept names.
const unkeptNames = 5

// unkept returns an error that names the containers, or the host class, whose policy is not fully
// in force. It skips containers that are counted with another one, as they have no policy of their
// own.
func unkept(list []v1.Container) error {
	var names []string
	count := 0
	for _, c := range list {
		if c.State == v1.StateOK || c.CountedWith != "" {
			continue
		}
		if count++; count <= unkeptNames {
			names = append(names, fmt.Sprintf("%s (%s)", c.Name, c.State))
		}
	}
	if count == 0 {
		return nil
	}
	if more := count - unkeptNames; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("%s; weir ps says why", strings.Join(names, ", "))
}

func reachable(socket string) error {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

func printFindings(w io.Writer, findings []finding) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", f.Check, f.Result, cmdline.Printable(f.Detail))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// probeHostMode returns an error if this host cannot identify containers in the host's network.
func probeHostMode() error {
	if _, err := cgroup.FindRoot("/proc"); err != nil {
		return err
	}
	return kernel.ProbeSocketCgroup()
}
