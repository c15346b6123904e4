package vm

import (
	"path"
	"slices"
	"strings"
	"time"
)

// What ends a machine that hangs: machineCPUTime, and gateCPUTime in make test, are of this machine's
// processors, and about twice what the longest takes on a slow one; machineTimeout is for one that does
// nothing at all. Other suites may come first all the time (scripts/test.sh).
const (
	machineCPUTime = 150 * time.Minute
	gateCPUTime    = 40 * time.Minute
	machineTimeout = 3 * time.Hour
)

// Cgroups is how the control groups are mounted.
type Cgroups string

const (
	// Unified: version 2 only.
	Unified Cgroups = "unified"
	// Hybrid: controllers of version 1, and version 2 beside them, as was
	// systemd's default for long.
	Hybrid Cgroups = "hybrid"
)

// Machine is one kernel and what is run on it.
type Machine struct {
	// Series is the kernel's, such as 6.12: the newest that is to be had.
	Series string
	// Arch is the architecture, as Debian names it.
	Arch    string
	Cgroups Cgroups
	Suites  []Suite
	// Gate is what make test runs on it; nothing if it does not boot the machine.
	Gate []Suite
	// Lacks are modules that it does not load.
	Lacks []string
	// cpuTime limits the processor time; 0 is machineCPUTime.
	cpuTime time.Duration
	// MaySkip matches the SUITE/TEST of what the kernel cannot do. Everything
	// else that is skipped is a failure.
	MaySkip string
}

// Name tells machines apart in reports.
func (m Machine) Name() string {
	if len(m.Lacks) > 0 {
		return m.Series + "-without-" + strings.Join(m.Lacks, "-")
	}
	if m.Arch != "amd64" {
		return m.Series + "-" + m.Arch
	}
	return m.Series
}

// Suite is some of a package's tests of one build tag.
type Suite struct {
	Package string
	// Tag is TagNetNS or TagDocker.
	Tag string
	// Run and Skip select tests, as the flags of go test. Neither has blanks. Run may name benchmarks instead.
	Run, Skip string
}

// The tags of tests that a machine can run. Those with an engine need its
// programs in the machine.
const (
	TagNetNS  = "netns"
	TagDocker = "docker"
)

func (s Suite) name() string { return path.Base(s.Package) }

// hasEngine says whether the machine runs container engines.
func (m Machine) hasEngine() bool {
	return slices.ContainsFunc(m.Suites, func(s Suite) bool { return s.Tag == TagDocker })
}

// hasOpenFlow says whether the machine runs an Open vSwitch.
func (m Machine) hasOpenFlow() bool {
	return slices.ContainsFunc(m.Suites, func(s Suite) bool { return s.Package == openFlowSwitch.Package })
}

// hasServices says whether the machine runs weir-edge.
func (m Machine) hasServices() bool {
	return slices.ContainsFunc(m.Suites, func(s Suite) bool { return s.Package == servicesOnLinks.Package })
}

// modules are the modules that the machine loads.
func (m Machine) modules() []string {
	modules := netModules
	if m.Arch == armhf {
		modules = slices.Concat([]string{"crc32c_generic"}, modules) // others have it built in
	}
	if m.hasEngine() {
		modules = slices.Concat(modules, engineModules)
	}
	if m.hasOpenFlow() {
		modules = slices.Concat(modules, []string{"openvswitch"})
	}
	return slices.DeleteFunc(slices.Clone(modules), func(name string) bool { return slices.Contains(m.Lacks, name) })
}

// inGate returns the machines of make test, with what it runs on them.
func inGate() []Machine {
	var machines []Machine
	for _, m := range Machines {
		m.Suites, m.cpuTime = m.Gate, gateCPUTime
		if len(m.Gate) > 0 {
			machines = append(machines, m)
		}
	}
	return machines
}

// suitesOf returns the suites of those machines that have an architecture.
func suitesOf(machines []Machine, arch string) []Suite {
	var suites []Suite
	for _, m := range machines {
		if m.Arch == arch {
			suites = append(suites, m.Suites...)
		}
	}
	return suites
}

// armhf is 32-bit ARM, the one architecture that Debian and Go name differently.
const armhf = "armhf"

// releases is where kernels are looked for, and the programs of other architectures.
var releases = []struct{ name, archs string }{
	{"bookworm", "amd64,arm64,armhf"}, {"bookworm-backports", "amd64,arm64,armhf"}, {"trixie-backports", "amd64"}, {"sid", "amd64"},
}

// Machines are all machines, those that take longest first.
var Machines = []Machine{
	{Series: "7.2", Arch: "amd64", Cgroups: Hybrid, Suites: everything, Gate: gate},
	{Series: "6.1", Arch: "amd64", Cgroups: Unified, Suites: everything, Gate: gate, MaySkip: without66},
	{Series: "6.12", Arch: "amd64", Cgroups: Hybrid, Suites: slices.Concat(withEngine, inModes)},
	{Series: "6.18", Arch: "amd64", Cgroups: Unified, Suites: append([]Suite{openFlowSwitch, demoOnSwitches, servicesOnLinks}, withSwitch...)},
	{Series: "6.12", Arch: "arm64", Cgroups: Unified, Suites: onARM},
	{Series: "6.12", Arch: armhf, Cgroups: Unified, Suites: onARM, MaySkip: withoutTypes},
	{Series: "6.12", Arch: "amd64", Cgroups: Unified, Suites: withoutRedirect, Lacks: []string{"ifb"}},
	{Series: "6.12", Arch: "amd64", Cgroups: Unified, Suites: withoutRedirect, Lacks: []string{"act_mirred"}},
}

// benches are the machines of TestBenchmarks.
var benches = []Machine{
	{Series: "6.18", Arch: "amd64", Cgroups: Unified, Suites: []Suite{packetPath}},
	{Series: "6.12", Arch: "arm64", Cgroups: Unified, Suites: []Suite{packetPath}},
	{Series: "6.12", Arch: armhf, Cgroups: Unified, Suites: []Suite{packetPath}},
}

var packetPath = Suite{Package: "./internal/datapath/identity", Tag: TagNetNS, Run: "BenchmarkPath"}

// without66: kernels before 6.6 have no tcx, so that no program of a test comes
// before or after the classifier, and before 6.2 no program sees whether a queue
// is empty; before 6.8 none loads without the kernel's types.
const without66 = "^identity/(TestProgramsLoadWithoutTypes$|TestPriority|TestQueueTags$|TestDirect|TestOverhead$|TestTapComesFirst/tcx$" +
	"|TestUplinkComesFirst$|TestFollowers$|TestMacvlanPackets$|TestCgroupPackets$)|^netns/TestIsolation/|^netns/TestIncoming(Failures|ForcedBehind)/tcx$"

// withoutTypes: a kernel that tells no types loads no program that reads its structures.
const withoutTypes = "^identity/TestProgramsLoad/(delay|lines|origin)$"

// programs: every BPF program is accepted by the kernel's verifier.
var programs = []Suite{
	{Package: "./internal/datapath/identity", Tag: TagNetNS, Run: "TestProgramsLoad"},
	{Package: "./internal/lab/meter", Tag: TagNetNS, Run: "TestProgramsLoad"},
}

// onARM are the suites of ARM machines: programs, identification of containers in five modes, shares, classes, the restart
// of an agent, and a service of weir-edge.
var onARM = append(slices.Clone(programs), Suite{Package: "./test/netns", Tag: TagNetNS,
	Run: "TestModes/^(bridge|host|macvlan|ipvlan-l2|overlay)$/UDP|" +
		"TestShares/10_Mbit|TestClassKeepsOthersShares/(EF_with_a_maximum|AF_and_BE)|TestContainersChangeWhileNoAgentRuns|TestKernelStateGolden"}, oneService)

// withoutRedirect: what a kernel does that cannot share received traffic.
var withoutRedirect = []Suite{{Package: "./test/netns", Tag: TagNetNS, Run: "TestIncomingOnKernelWithout"}}

// gate is what differs between kernels most: how programs attach and tell containers apart in
// each mode, the scheduler's queues and shares, what an agent finds after a restart, the
// whole state of the kernel, and devices that this machine's kernel may lack.
var gate = []Suite{
	{Package: "./internal/datapath/identity", Tag: TagNetNS, Run: ".", Skip: notInMachines + "|TestInspectWhileDevicesGo|" + ofManyPackets},
	{Package: "./internal/datapath/htb", Tag: TagNetNS, Run: "TestSparseFlows|TestQueueMemory"},
	{Package: "./test/netns", Tag: TagNetNS, Run: "TestModes/^(bridge|host|macvlan|ipvlan-l2|ipvlan-l3|overlay)$/UDP|" +
		"TestShares/10_Mbit|TestContainersChangeWhileNoAgentRuns|TestWithoutCgroups|TestKernelStateGolden|" +
		"TestSetups/(VLAN|bond)|TestBridgeAsUplink"},
}

// notInMachines are tests of delays that only a faster processor keeps.
const notInMachines = "TestDelays$|TestFlowDelays$"

// ofManyPackets are tests of tables and of parsing that put ten thousand packets to a million
// through a program: a fifth of the time of the others together. What they find depends on the
// program, which the suite netns runs.
const ofManyPackets = "TestManyFlows|TestFirstPackets|TestFloodOfSYNs|TestSendersOfFlood|TestIncomingFloodOfFragments"

// What a machine is asked for costs this machine's time: a hundred megabits
// through one for a second take two seconds of a processor. So all that depends
// on the kernel is asked of the oldest and of the newest only, and what tests
// Weir's commands and files is left to the suite netns.
var (
	// inModes: containers are told apart in every mode and get what they
	// should, with fq_codel queues.
	inModes = withPackages(modes, "TestInspectWhileDevicesGo")
	// withSwitch: besides, with the uplink as a port of Open vSwitch.
	withSwitch = withPackages(modes+"|TestOpenVSwitch", "TestInspectWhileDevicesGo")
	// everything: besides, TCP, how containers reach the uplink, mixtures, what
	// others do to the uplink, an attack in ipvlan mode, and peers that this machine's kernel may lack.
	everything = append(withPackages("TestModes|"+onEveryKernel+
		"|TestDropsAreShown|TestMarksAreShown|TestDown$|TestMixedModes|TestNestedCgroup|TestTwoNetworks|TestSeveralUplinks|TestTunnelOfHost|TestControlTrafficSurvives"+
		"|TestIncoming(AtDevices|AtBridge|AfterRename|LeavesUplink|Failures|BehindFirstFilter|ForcedBehind)?$|TestXDPAtUplink|TestFlowTableAtUplink|TestForeign|TestJumboFrames|TestVethReplaced|TestInterfaceAdded|TestShares/10_Mbit"+
		"|TestIsolation/ipvlan-l2/forwarded_(as_the_host|to_a_group)"),
		Suite{Package: "./internal/lab/bench", Tag: TagNetNS, Run: "TestPeersByIFB|TestPeersByClasses|TestDirectModesTakeTurns"})
)

const modes = "TestModes/^(bridge|host|macvlan|ipvlan-l2|ipvlan-l3|overlay)$/UDP|" + onEveryKernel

const onEveryKernel = "TestWithoutCgroups|TestSetups/(VLAN|bond|gateway|containers_on_the_LAN|bridge_of_two_cards|VPN_of)|TestBridgeAsUplink|TestEncryptedOverlay|TestKernelStateGolden" +
	"|TestContainerComesAndGoes"

// withPackages are the suites of a machine that runs these tests of test/netns, and
// of the classifier all but some.
func withPackages(netns string, butOfClassifier ...string) []Suite {
	skip := strings.Join(append([]string{notInMachines}, butOfClassifier...), "|")
	return []Suite{
		{Package: "./internal/datapath/identity", Tag: TagNetNS, Run: ".", Skip: skip},
		{Package: "./internal/lab/meter", Tag: TagNetNS, Run: "."},
		{Package: "./internal/datapath/htb", Tag: TagNetNS, Run: "TestSparseFlows|TestQueueMemory"},
		{Package: "./test/netns", Tag: TagNetNS, Run: netns},
	}
}

// withEngine is what takes a container engine and a kernel with IPsec or IPVS, which the
// machine that the suite docker runs on may lack.
var withEngine = []Suite{{Package: "./test/docker", Tag: TagDocker, Run: "TestEncryptedOverlay|TestRoutingMesh"}}

// openFlowSwitch is what takes a switch whose packets go through queues, which
// Open vSwitch's are only in a kernel with its module.
var openFlowSwitch = Suite{Package: "./test/sdn", Tag: TagNetNS, Run: "TestKernelDatapath|TestTrustKernel|TestQueuesByMarkKernel|TestPromiseKernel"}

// demoOnSwitches is the demo whose last scene takes such switches.
var demoOnSwitches = Suite{Package: "./internal/lab/cli", Tag: TagDocker, Run: "TestDemoSite$"}

// servicesOnLinks is what takes weir-edge, an engine and such a switch.
var servicesOnLinks = Suite{Package: "./test/edge", Tag: TagDocker, Run: "TestLinksKernel"}

// oneService is what takes weir-edge and an engine: a service that gets users and more instances.
var oneService = Suite{Package: "./test/edge", Tag: TagDocker, Run: "TestOneEngine/^(a_service_from_its_specification|a_crowd_comes|removed)$"}

// netModules are what the tests' networks and Weir need, besides what these
// depend on; a kernel may have some built in. Nothing loads modules on demand
// in a machine.
var netModules = []string{
	"veth", "bridge", "macvlan", "ipvlan", "vxlan", "8021q", "bonding",
	"sch_htb", "sch_tbf", "sch_fq_codel", "sch_cake", "sch_drr", "sch_hfsc", "sch_ingress", "cls_bpf", "cls_u32", "act_mirred", "act_police", "ifb", "tun",
	"nft_compat", "nft_chain_nat", "xt_MASQUERADE", "xt_nat", "xt_tcpudp", "xt_CLASSIFY",
	"xt_conntrack", "nf_flow_table_inet", "wireguard", "esp4", "xfrm_user", "seqiv", "gcm",
}

// engineModules are what Docker needs besides, for its networks and rules.
var engineModules = []string{"overlay", "br_netfilter", "xt_addrtype", "xt_mark", "xt_policy",
	// Older and newer ones tell overlay networks apart in another way.
	"xt_u32", "xt_bpf",
	// Swarm's routing mesh.
	"ip_vs", "ip_vs_rr", "xt_ipvs", "xt_REDIRECT"}

// ciphers are modules of some kernels; others have what they do built in.
var ciphers = []string{
	"ctr", "ghash_generic", "aes_generic",
	// seqiv's random numbers.
	"hmac", "sha256_generic", "sha512_generic", "jitterentropy_rng", "drbg",
}
