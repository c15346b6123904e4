package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

const (
	cniModule       = "github.com/containernetworking/plugins/plugins/meta/bandwidth"
	cniVersion      = "v1.9.1"
	cniSpecVersion  = "1.0.0"
	cniInterface    = "eth0"
	cniBuildTimeout = 5 * time.Minute
)

// cni is the bandwidth plugin of the CNI project, which Kubernetes uses for
// kubernetes.io/egress-bandwidth: a token bucket per container, on an IFB
// device to which the container's traffic is redirected; for ingress-bandwidth
// one at the host's end of the container's interface. It knows ceilings only.
type cni struct {
	static
	path string
	// containerdBurst gives the bucket the size that containerd asks for:
	// math.MaxUint32 bits (toCNIBandWidth in its CRI plugin). Otherwise it
	// holds a millisecond, as the buckets of the other peers do.
	containerdBurst bool
}

// newCNI builds the plugin from its Go module, once per cache directory.
func newCNI(ctx context.Context, options Options, containerdBurst bool) (*cni, error) {
	dir := filepath.Join(options.CacheDir, "cni-bandwidth-"+cniVersion)
	path := filepath.Join(dir, "bandwidth")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		ctx, cancel := context.WithTimeout(ctx, cniBuildTimeout)
		defer cancel()
		install := exec.CommandContext(ctx, "go", "install", cniModule+"@"+cniVersion)
		install.Dir = os.TempDir()
		install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=", "CGO_ENABLED=0")
		if _, err := Output(install); err != nil {
			return nil, &lacksError{fmt.Errorf("build the CNI bandwidth plugin: %w", err)}
		}
	}
	return &cni{path: path, containerdBurst: containerdBurst}, nil
}

func (p *cni) Apply(ctx context.Context, b *Bed, c Case, containers []Placed) error {
	// The plugin caps containers; the link is still a link.
	if err := (fifo{}).Apply(ctx, b, c, containers); err != nil {
		return err
	}
	for _, one := range containers {
		if one.MaxBPS == 0 {
			continue
		}
		if err := p.run(ctx, b, "ADD", one, c.Incoming); err != nil {
			return fmt.Errorf("cap container %s: %w", one.Name, err)
		}
	}
	return nil
}

func (p *cni) Remove(ctx context.Context, b *Bed, containers []Placed) error {
	problems := []error{b.ClearUplink(ctx)}
	for _, one := range containers {
		if one.MaxBPS == 0 {
			continue
		}
		problems = append(problems, p.run(ctx, b, "DEL", one, false))
		// The plugin leaves its qdiscs to the end of the interface; here the
		// interface lives on.
		hostInterface, err := b.hostInterface(ctx, one)
		problems = append(problems, err)
		if err == nil {
			problems = append(problems, b.clearRoot(ctx, hostInterface), b.clearIngress(ctx, hostInterface))
		}
	}
	return errors.Join(problems...)
}

// cniConfig is what a runtime gives to a chained plugin on standard input.
type cniConfig struct {
	CNIVersion    string `json:"cniVersion"`
	Name          string `json:"name"`
	Type          string `json:"type"`
	RuntimeConfig struct {
		Bandwidth struct {
			// Rates in bits per second, bursts in bits.
			EgressRate   uint64 `json:"egressRate,omitempty"`
			EgressBurst  uint64 `json:"egressBurst,omitempty"`
			IngressRate  uint64 `json:"ingressRate,omitempty"`
			IngressBurst uint64 `json:"ingressBurst,omitempty"`
		} `json:"bandwidth"`
	} `json:"runtimeConfig"`
	PrevResult struct {
		CNIVersion string                `json:"cniVersion"`
		Interfaces []cniInterfaceOfChain `json:"interfaces"`
	} `json:"prevResult"`
}

type cniInterfaceOfChain struct {
	Name    string `json:"name"`
	Sandbox string `json:"sandbox,omitempty"`
}

func (p *cni) run(ctx context.Context, b *Bed, command string, one Placed, incoming bool) error {
	hostInterface, err := b.hostInterface(ctx, one)
	if err != nil {
		return err
	}
	config := cniConfig{CNIVersion: cniSpecVersion, Name: "weir-bench", Type: "bandwidth"}
	burstBits := burstBytes(one.MaxBPS) * 8
	if p.containerdBurst {
		burstBits = math.MaxUint32
	}
	if bandwidth := &config.RuntimeConfig.Bandwidth; incoming {
		bandwidth.IngressRate, bandwidth.IngressBurst = one.MaxBPS, burstBits
	} else {
		bandwidth.EgressRate, bandwidth.EgressBurst = one.MaxBPS, burstBits
	}
	config.PrevResult.CNIVersion = cniSpecVersion
	config.PrevResult.Interfaces = []cniInterfaceOfChain{
		{Name: hostInterface},
		{Name: cniInterface, Sandbox: one.NetNSPath},
	}
	stdin, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("write the CNI configuration: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	cmd := b.Host.Command(ctx, p.path)
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(),
		"CNI_COMMAND="+command,
		"CNI_CONTAINERID="+one.Name,
		"CNI_NETNS="+one.NetNSPath,
		"CNI_IFNAME="+cniInterface,
		"CNI_PATH="+filepath.Dir(p.path))
	_, err = Output(cmd)
	return err
}

// hostInterface returns the host's end of a container's veth pair.
func (b *Bed) hostInterface(ctx context.Context, one Placed) (string, error) {
	type link struct {
		Index     int    `json:"ifindex"`
		Name      string `json:"ifname"`
		PeerIndex int    `json:"link_index"`
	}
	list := func(cmd *exec.Cmd) (links []link, err error) {
		out, err := Output(cmd)
		if err != nil {
			return nil, err
		}
		return links, json.Unmarshal(out, &links)
	}
	inside, err := list(exec.CommandContext(ctx, "nsenter", "--net="+one.NetNSPath, "--",
		"ip", "-j", "link", "show", "dev", cniInterface))
	if err != nil {
		return "", fmt.Errorf("find the interface of container %s: %w", one.Name, err)
	}
	outside, err := list(b.Host.Command(ctx, "ip", "-j", "link", "show"))
	if err != nil {
		return "", fmt.Errorf("find the interface of container %s: %w", one.Name, err)
	}
	for _, candidate := range outside {
		if len(inside) == 1 && candidate.Index == inside[0].PeerIndex {
			return candidate.Name, nil
		}
	}
	return "", fmt.Errorf("find the interface of container %s: %s has no peer in the host", one.Name, cniInterface)
}
