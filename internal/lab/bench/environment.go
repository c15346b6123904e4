package bench

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

const unknown = "unknown"

// environment describes the machine. What cannot be found out is "unknown":
// a report is worth having without it.
func environment(ctx context.Context, b *bed) Environment {
	e := Environment{
		Kernel:     unknown,
		CPUs:       runtime.NumCPU(),
		CPUModel:   cpuModel(),
		Arch:       runtime.GOARCH,
		Go:         runtime.Version(),
		Weir:       weirVersion(),
		Containers: "network namespaces",
		TC:         unknown,
		TCP:        unknown,
	}
	var uname unix.Utsname
	if unix.Uname(&uname) == nil {
		e.Kernel = unix.ByteSliceToString(uname.Release[:])
	}
	if out, err := exec.CommandContext(ctx, "tc", "-V").Output(); err == nil {
		e.TC = strings.TrimSpace(string(out))
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		e.TCP = strings.TrimSpace(string(text))
	}
	if b.engine != nil {
		e.Containers = "docker " + unknown
		if out, err := exec.CommandContext(ctx, "dockerd", "--version").Output(); err == nil {
			e.Containers = strings.TrimSpace(string(out))
		}
	}
	return e
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

func weirVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	version := info.Main.Version
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			version += " " + setting.Value
		}
	}
	return version
}
