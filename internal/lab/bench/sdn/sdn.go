// Package sdn measures controllers of OpenFlow switches.
package sdn

import (
	"context"
	_ "embed" // os-ken's side of the comparison
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/report/machine"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// Suite is its name.
const Suite = "sdn"

// besideLoad names the row of Weir's controller on all processors, that of the load included.
const besideLoad = "weir beside the load"

// MostSwitches is how many switches are played at most.
const MostSwitches = 1000

//go:embed osken.py
var osKenProgram []byte

// Options are what is measured.
type Options struct {
	measure.RunOptions
	Switches int
	// Python is an interpreter that has os-ken; empty: os-ken is left out.
	Python string
}

// Report is what `weir bench sdn -o json` prints. Field names are only ever added to.
type Report struct {
	report.Report
	Suite       string       `json:"suite"`
	Switches    int          `json:"switches"`
	Controllers []Controller `json:"controllers"`
	// Ratio is Weir's packet-ins a second to os-ken's, RatioCPU the same per
	// second of processor time; 0 without os-ken.
	Ratio    float64 `json:"ratio,omitempty"`
	RatioCPU float64 `json:"ratio_cpu,omitempty"`
}

// Controller is one controller.
type Controller struct {
	Name string `json:"name"`
	// Processors are those of the controller where the load has one of its own; otherwise empty.
	Processors string `json:"processors,omitempty"`
	// PacketInsPerSecond is the asynchronous message processing rate of RFC 8456, section 5.1.3, of packet-ins that
	// were answered with packet-outs. FlowModsPerSecond came with them: of one switch, each way
	// provisioned reactively (section 5.1.6) takes one packet-in and two flow-mods.
	PacketInsPerSecond float64 `json:"packet_ins_per_second"`
	FlowModsPerSecond  float64 `json:"flow_mods_per_second"`
	// PerCPUSecond is packet-ins for each second of the controller's processor
	// time: what it takes on a busy machine, too.
	PerCPUSecond float64 `json:"packet_ins_per_cpu_second"`
	// CPUSeconds and LoadCPUSeconds are the processor time of the controller and
	// of the switches that are played, for each second of full load: they share
	// the machine.
	CPUSeconds     float64 `json:"cpu_seconds_per_second"`
	LoadCPUSeconds float64 `json:"load_cpu_seconds_per_second"`
	// HalfPerSecond is how many packet-ins a second were sent to measure delays: half of
	// the target's, or of what the controller can answer if that is less. HalfP50MS and
	// HalfP99MS are the asynchronous message processing time (RFC 8456, section 5.1.2; there it is that of one
	// message at a time), from when packet-ins were due to when their packet-outs came.
	HalfPerSecond float64 `json:"half_load_packet_ins_per_second"`
	HalfP50MS     float64 `json:"half_load_p50_ms"`
	HalfP99MS     float64 `json:"half_load_p99_ms"`
	// HalfLateP99MS is how much later than due packet-ins were sent, which is part of
	// these delays and no fault of the controller's.
	HalfLateP99MS float64 `json:"half_load_late_p99_ms"`
	// HalfWaitRatio is how long the controller's threads waited for a processor
	// at half load, to how long they had one: where it is not small, delays are
	// those of a busy machine.
	HalfWaitRatio float64 `json:"half_load_wait_ratio"`
	// ResidentBytes with 10,000 flows; 0 where that is not what it keeps.
	ResidentBytes uint64 `json:"resident_bytes,omitempty"`
}

// memoryFlows is how many flows a controller's memory is measured with.
const memoryFlows = 10000

// Run measures Weir and, where there is one, os-ken, one after the other.
func Run(ctx context.Context, o Options) (found Report, err error) {
	if o.Switches < 1 || o.Switches > MostSwitches {
		return found, fmt.Errorf("%d switches are not within 1 and %d", o.Switches, MostSwitches)
	}
	started := time.Now()
	found = Report{
		Report: o.NewReport(Suite, "", started, machine.Read(o.Version)),
		Suite:  Suite, Switches: o.Switches,
	}
	found.Repeat, found.PausesUnknown = 1, true
	if err := found.measure(ctx, o); err != nil {
		return found, err
	}
	found.Runs = len(found.Controllers)
	found.complete()
	found.TookSeconds = time.Since(started).Seconds()
	return found, nil
}

// CheckOSKen says whether a Python interpreter has os-ken.
func CheckOSKen(ctx context.Context, python string) error {
	const says = "os-ken is here"
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-c", "import os_ken; print('"+says+"')").CombinedOutput()
	switch {
	case strings.Contains(string(out), says):
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s", python)
	}
	return fmt.Errorf("%s has no module os_ken (%s -m pip install os-ken)", python, python)
}

// measure runs the controllers.
func (r *Report) measure(ctx context.Context, o Options) error {
	dir, err := testbed.MakeTempDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	weir := func(port string) *exec.Cmd {
		return exec.CommandContext(ctx, o.WeirBinary, "sdn", "run", "--listen", "tcp:127.0.0.1:"+port, "--socket", filepath.Join(dir, port+".sock"),
			"--packet-ins", "0", "--max-flows", "10000000", "--strict")
	}
	apart, err := setApart()
	if err != nil {
		return err
	}
	fmt.Fprintln(o.Progress, "weir")
	one, err := measureController(ctx, o, apart, "weir", weir)
	if err != nil {
		return err
	}
	if one.ResidentBytes, err = residentBytes(ctx, o, weir); err != nil {
		return err
	}
	r.Controllers = append(r.Controllers, one)
	if apart.load >= 0 {
		fmt.Fprintln(o.Progress, besideLoad)
		shared, err := measureController(ctx, o, sharing(), besideLoad, weir)
		if err != nil {
			return err
		}
		r.Controllers = append(r.Controllers, shared)
	}
	if o.Python == "" {
		return nil
	}
	program := filepath.Join(dir, "sdn_osken.py")
	if err := os.WriteFile(program, osKenProgram, 0o600); err != nil {
		return fmt.Errorf("write os-ken's program: %w", err)
	}
	fmt.Fprintln(o.Progress, "os-ken")
	two, err := measureController(ctx, o, apart, "os-ken", func(port string) *exec.Cmd { return exec.CommandContext(ctx, o.Python, program, port) })
	if err != nil {
		return err
	}
	r.Controllers = append(r.Controllers, two)
	r.Ratio, r.RatioCPU = one.PacketInsPerSecond/two.PacketInsPerSecond, one.PerCPUSecond/two.PerCPUSecond
	return nil
}

// controllerProcess is a controller with its switches.
type controllerProcess struct {
	*testbed.Process
	load *playedSwitches
}

func (p *controllerProcess) stop() {
	p.load.close()
	_ = p.End(syscall.SIGTERM, 5*time.Second) // what counts was measured before
}

// startController starts a controller and connects the switches.
func startController(ctx context.Context, o Options, apart processors, name string, command func(port string) *exec.Cmd) (*controllerProcess, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	address := l.Addr().String()
	l.Close()
	_, port, _ := net.SplitHostPort(address)
	cmd := command(port)
	if apart.load >= 0 {
		cmd.Path, cmd.Args = apart.taskset, append([]string{"taskset", "-c", apart.controller}, cmd.Args...)
	}
	process, err := testbed.StartProcess(name, cmd)
	if err != nil {
		return nil, err
	}
	p := &controllerProcess{process, &playedSwitches{processor: apart.load}}
	starting, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err = p.Await(starting, 100*time.Millisecond, func(context.Context) error { return p.load.connect(address, o.Switches) })
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("connect to %s: %w", name, err)
	}
	err = p.load.play(3 * time.Second) // Weir waits whether ports are links
	if err == nil {
		err = p.load.introduce()
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("play switches for %s: %w: %s", name, err, p.LastWords())
	}
	return p, nil
}

// window is how many packet-ins of a switch wait for their answers at full load.
const window = 32

func measureController(ctx context.Context, o Options, apart processors, name string, command func(port string) *exec.Cmd) (Controller, error) {
	found := Controller{Name: name, Processors: apart.controller}
	p, err := startController(ctx, o, apart, name, command)
	if err != nil {
		return found, err
	}
	defer p.stop()
	before, err := measure.ProcessorTime(p.Pid())
	if err != nil {
		return found, err
	}
	loadBefore, err := measure.ProcessorTime(os.Getpid())
	if err != nil {
		return found, err
	}
	full, err := p.load.run(ctx, o.Duration, 0)
	if err != nil {
		return found, fmt.Errorf("%s at full load: %w: %s", name, err, p.LastWords())
	}
	after, err := measure.ProcessorTime(p.Pid())
	if err != nil {
		return found, err
	}
	found.PacketInsPerSecond = float64(full.answers) / full.took.Seconds()
	found.FlowModsPerSecond = float64(full.flowMods) / full.took.Seconds()
	loadAfter, err := measure.ProcessorTime(os.Getpid())
	if err != nil {
		return found, err
	}
	found.PerCPUSecond = float64(full.answers) / (after - before).Seconds()
	found.CPUSeconds = (after - before).Seconds() / full.took.Seconds()
	found.LoadCPUSeconds = (loadAfter - loadBefore).Seconds() / full.took.Seconds()
	ranBefore, waitedBefore, err := measure.ThreadTimes(p.Pid())
	if err != nil {
		return found, err
	}
	found.HalfPerSecond = min(found.PacketInsPerSecond, leastPacketIns) / 2
	half, err := p.load.run(ctx, o.Duration, found.HalfPerSecond)
	if err != nil {
		return found, fmt.Errorf("%s at half load: %w: %s", name, err, p.LastWords())
	}
	ran, waited, err := measure.ThreadTimes(p.Pid())
	if err != nil {
		return found, err
	}
	if ran > ranBefore {
		found.HalfWaitRatio = (waited - waitedBefore).Seconds() / (ran - ranBefore).Seconds()
	}
	found.HalfP50MS, found.HalfP99MS = quantileMS(half.delays, 0.5), quantileMS(half.delays, 0.99)
	found.HalfLateP99MS = quantileMS(half.late, 0.99)
	return found, nil
}

// residentBytes is the memory of a fresh controller with memoryFlows flows.
func residentBytes(ctx context.Context, o Options, command func(port string) *exec.Cmd) (uint64, error) {
	p, err := startController(ctx, o, sharing(), "weir", command)
	if err != nil {
		return 0, err
	}
	defer p.stop()
	each := (memoryFlows + o.Switches - 1) / o.Switches
	if err := p.load.exactly(each); err != nil {
		return 0, fmt.Errorf("weir with %d flows: %w", memoryFlows, err)
	}
	bytes, _, err := measure.ResidentBytes(p.Pid())
	return bytes, err
}
