package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/edge/profile"
	"github.com/weir-project/weir/internal/edge/runtime/docker"
	"github.com/weir-project/weir/internal/edge/spec"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// profileOptions are the flags of profile.
type profileOptions struct {
	docker, network    string
	name, memory, path string
	cpus               float64
	port, hostPort     uint16
	users              []int
	response, duration time.Duration
	patience           time.Duration
}

func newProfileCommand() *cobra.Command {
	var o profileOptions
	cmd := &cobra.Command{
		Use:   "profile IMAGE",
		Short: "Measure how many users an image can serve, and write its specification",
		Long: `Measure an image that serves HTTP, and write its specification to standard output. An
instance is started three times, and the median is startUpTime. Then crowds of users ask
it, each user one request after the other without a pause. maxUsers is the most of whose
requests 99 % succeed, and 95 % within the response time; fewer were served as well.

Success, response times (mean, and of 95 %), and what the instance takes of processors
and memory go to standard error, a line for each crowd. Requests come from this host and
use its processors as well: where users take a pause, an instance serves more of them.
Needs neither weir-edge run nor HAProxy.`,
		Example: `  weir-edge profile nginx --response-time 500ms >shop.json
  weir-edge profile shop:2 --port 8000 --path /health --memory 64m --cpus 0.5 --users 5,50,100`,
		Args: cmdline.ExactArgs("IMAGE"),
		RunE: func(cmd *cobra.Command, args []string) error { return engineError(o.docker, o.run(cmd, args[0])) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.docker, "docker", "/var/run/docker.sock", "socket of the Docker engine")
	flags.StringVar(&o.network, "network", "bridge", "Docker network of the instance")
	flags.StringVar(&o.name, "name", "", "name of the service (default: the image's)")
	flags.Uint16Var(&o.port, "port", 0, "port of the container (default: the one that the image exposes)")
	flags.Uint16Var(&o.hostPort, "host-port", 0, "port of the host for the specification (default: the container's)")
	flags.StringVar(&o.path, "path", "/", "what users ask for")
	flags.StringVar(&o.memory, "memory", "", "memory limit of an instance, such as 64m")
	flags.Float64Var(&o.cpus, "cpus", 0, "processors that an instance may use, such as 0.5")
	flags.IntSliceVar(&o.users, "users", []int{5, 10, 20, 50, 100, 200, 500, 1000}, "users at once, one crowd after the other")
	flags.DurationVar(&o.response, "response-time", 2*time.Second, "what users may have to wait")
	flags.DurationVar(&o.duration, "duration", 10*time.Second, "how long each crowd asks")
	flags.DurationVar(&o.patience, "start-timeout", time.Minute, "how long an instance may take to its first answer")
	return cmd
}

// maxCrowd is the largest number of simulated users; each needs a file descriptor.
const maxCrowd = 20_000

// check returns an error for flag values that cannot be measured.
func (o *profileOptions) check() error {
	if len(o.users) == 0 {
		return cmdline.Usagef("--users: no number of users is given; write for example 5,50,100")
	}
	for _, users := range o.users {
		if users < 1 || users > maxCrowd {
			return cmdline.Usagef("--users: a crowd of %d cannot be; write from 1 to %d", users, maxCrowd)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"response-time", o.response, time.Millisecond},
		{"duration", o.duration, 100 * time.Millisecond},
		{"start-timeout", o.patience, 100 * time.Millisecond},
	} {
		if d.value < d.least || d.value > time.Hour {
			return cmdline.Usagef("--%s: %v is out of range; write from %v to 1h", d.name, d.value, d.least)
		}
	}
	if !strings.HasPrefix(o.path, "/") {
		return cmdline.Usagef("--path: %q does not begin with /", o.path)
	}
	return nil
}

// specification returns a specification from the flags alone, validated like any other.
func (o *profileOptions) specification(image string) (spec.Spec, error) {
	name := o.name
	if name == "" {
		name = serviceName(image)
	}
	document := map[string]any{
		"par": map[string]any{"serviceName": name, "imageName": image},
		"QoS": map[string]any{"responseTime": o.response.Seconds()},
	}
	limits := map[string]any{}
	if o.memory != "" {
		limits["memory"] = o.memory
	}
	if o.cpus != 0 {
		limits["cpus"] = o.cpus
	}
	if len(limits) > 0 {
		document["limits"] = limits
	}
	text, err := json.Marshal(document)
	if err != nil {
		return spec.Spec{}, cmdline.Usagef("the specification: %w", err)
	}
	s, err := spec.Parse(text)
	if err != nil {
		return spec.Spec{}, cmdline.Usagef("the specification: %w", err)
	}
	return s, nil
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// serviceName is an image's name without registry, folder, tag and digest.
func serviceName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image = image[strings.LastIndex(image, "/")+1:]
	image, _, _ = strings.Cut(image, ":")
	return notInNames.ReplaceAllString(image, "-")
}

func (o *profileOptions) run(cmd *cobra.Command, image string) error {
	ctx, progress := cmd.Context(), cmd.ErrOrStderr()
	if err := o.check(); err != nil {
		return err
	}
	s, err := o.specification(image)
	if err != nil {
		return err
	}
	engine, err := docker.New(docker.Options{Socket: o.docker, Network: o.network})
	if err != nil {
		return err
	}
	defer engine.Close()
	found, err := engine.Fetch(ctx, s.Name, image)
	if err != nil {
		return err
	}
	s.ImageBytes = found.SizeBytes
	port, err := o.containerPort(ctx, engine, image)
	if err != nil {
		return err
	}
	host := port
	if o.hostPort > 0 {
		host = o.hostPort
	}
	s.Ports = []spec.Port{{Host: host, Container: port}}
	fmt.Fprintf(progress, "%8s %9s %9s %10s %10s %6s %9s\n", "USERS", "REQUESTS", "SUCCESS", "MEAN", "P95", "CPUS", "MEMORY")
	result, err := profile.Measure(ctx, profile.Options{
		Start: func(ctx context.Context) (profile.Instance, error) {
			t, err := engine.Try(ctx, docker.TrialOptions{Image: image, MemoryBytes: s.Limits.MemoryBytes, CPUs: s.Limits.CPUs})
			if err != nil {
				return nil, err
			}
			address := net.JoinHostPort(t.Addr.String(), strconv.Itoa(int(port)))
			return &trial{Trial: t, url: "http://" + address + o.path}, nil
		},
		Users: o.users, Duration: o.duration, Response: o.response, Patience: o.patience, Starts: 3,
		Report: func(l profile.Level) { printLevel(progress, l) },
	})
	if err != nil {
		return err
	}
	if result.MaxUsers == 0 {
		return noneServed(result, o.response)
	}
	s.MaxUsers = result.MaxUsers
	s.StartUpSeconds = max(math.Round(result.StartUp.Seconds()*1000)/1000, 0.001)
	return cmdline.PrintJSON(cmd.OutOrStdout(), s)
}

// noneServed returns the error for an image that serves no crowd well enough.
func noneServed(result profile.Result, response time.Duration) error {
	least := result.Levels[0]
	err := fmt.Errorf("an instance cannot serve even a crowd of %d: %.2f %% of their requests succeed, 95 %% of these within %v, and %v %% have to, within %v: allow a longer --response-time, fewer --users, or larger limits",
		least.Users, least.SuccessPercent(), least.P95.Round(time.Millisecond), profile.MinSuccessPercent, response)
	if least.LastError != nil {
		err = fmt.Errorf("%w (%w)", err, least.LastError)
	}
	return err
}

// containerPort returns the port at which an image listens.
func (o *profileOptions) containerPort(ctx context.Context, engine *docker.Runtime, image string) (uint16, error) {
	if o.port > 0 {
		return o.port, nil
	}
	ports, err := engine.Ports(ctx, image)
	switch {
	case err != nil:
		return 0, err
	case len(ports) == 0:
		return 0, errors.New("the image does not say where it listens: name its port with --port")
	case len(ports) > 1:
		return 0, fmt.Errorf("the image listens at the ports %v: choose one with --port", ports)
	}
	return ports[0], nil
}

func printLevel(w io.Writer, l profile.Level) {
	fmt.Fprintf(w, "%8d %9d %8.2f%% %10v %10v %6.2f %7.1fMB\n", l.Users, l.Requests, l.SuccessPercent(),
		l.Mean.Round(100*time.Microsecond), l.P95.Round(100*time.Microsecond), l.CPUs, float64(l.MemoryBytes)/1e6)
}

// trial is a container under measurement and the URL that users request from it.
type trial struct {
	*docker.Trial
	url string
}

// URL implements profile.Instance.
func (t *trial) URL() string { return t.url }

// Usage implements profile.Instance.
func (t *trial) Usage(ctx context.Context) (cpuSeconds float64, memoryBytes uint64, err error) {
	u, err := t.Trial.Usage(ctx)
	return u.CPUSeconds, u.MemoryBytes, err
}
