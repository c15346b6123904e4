package vm

import "time"

// bootTimeout and the machines' own limits are of this machine's time, and
// generous: they are for what hangs.
const machineTimeout = 20 * time.Minute

// Cgroups is how the control groups are mounted.
type Cgroups string

const (
	// Unified: cgroup v2 only.
	Unified Cgroups = "unified"
	// Hybrid: controllers of v1, and v2 beside them, as systemd's
	// default was for long.
	Hybrid Cgroups = "hybrid"
)

// Machine is one kernel and what is run on it.
type Machine struct {
	// Series is the kernel's, such as 6.12: the newest that is to be had.
	Series string
	// Arch is Debian's name of the architecture.
	Arch    string
	Cgroups Cgroups
	Suites  []Suite
}

// Name tells machines apart in reports.
func (m Machine) Name() string {
	if m.Arch != "amd64" {
		return m.Series + "-" + m.Arch
	}
	return m.Series
}

// Suite is a package's tests that are run in a machine.
type Suite struct {
	// Package has the tests, tagged netns.
	Package string
	// Run and Skip select tests, as the flags of go test.
	Run, Skip string
}

// releases is where kernels are looked for.
var releases = []string{"bookworm", "bookworm-backports", "trixie-backports", "sid"}

// Machines are all machines, the slowest first.
var Machines = []Machine{
	{Series: "6.1", Arch: "amd64", Cgroups: Unified, Suites: everything},
	{Series: "6.12", Arch: "amd64", Cgroups: Hybrid, Suites: everything},
	{Series: "6.18", Arch: "amd64", Cgroups: Unified, Suites: everything},
	{Series: "7.2", Arch: "amd64", Cgroups: Hybrid, Suites: everything},
	{Series: "6.12", Arch: "arm64", Cgroups: Unified, Suites: programs},
}

// programs: every BPF program is accepted by the kernel's verifier.
var programs = []Suite{
	{Package: "./internal/classify", Run: "TestProgramsLoad"},
	{Package: "./internal/meter", Run: "TestProgramsLoad"},
}

// everything is what is run where there is the time for it.
var everything = append(programs[:len(programs):len(programs)],
	Suite{Package: "./internal/meter", Run: "."},
	Suite{Package: "./test/netns", Run: ".", Skip: "TestShares/1_Gbit"},
)

// modules are what the tests' networks and Weir need, built into the kernel or
// not, besides what these depend on. Nothing loads modules on demand in a
// machine.
var modules = []string{
	"veth", "bridge", "dummy", "macvlan", "ipvlan", "vxlan", "8021q", "bonding",
	"sch_htb", "sch_tbf", "sch_fq_codel", "sch_ingress", "cls_bpf",
	"nft_compat", "nft_chain_nat", "xt_MASQUERADE", "xt_nat", "xt_tcpudp",
	"xt_conntrack", "esp4", "esp6", "xfrm_user", "tun",
}
