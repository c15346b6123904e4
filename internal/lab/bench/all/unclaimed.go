package all

import (
	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/report"
)

// Unclaimed returns the items of the papers that have no claim: each figure, table, formula and algorithm that promises nothing to
// measure, with the page of docs and its heading, or the tests (package and name), that have it.
func Unclaimed() []report.Unclaimed {
	return []report.Unclaimed{
		{Source: claim.PaperQCon, Section: "1", Item: "figure 1: use cases", Here: `docs/user-guide.md, "Policies"`},
		{Source: claim.PaperQCon, Section: "2.2", Item: "figure 2: host and bridge driver", Here: `docs/architecture.md, "The path of a packet"`},
		{Source: claim.PaperQCon, Section: "3.2", Item: "figure 4: components", Here: `docs/architecture.md, "Two call paths"`},
		{Source: claim.PaperQCon, Section: "3.2.1", Item: "figure 5: scheduling function in the Linux bridge", Here: `different: at the uplink, for all network modes; docs/architecture.md, "The path of a packet"`},
		{Source: claim.PaperQCon, Section: "3.2.2", Item: "credits, each 30 ms", Here: `different: rates of HTB classes; docs/architecture.md, "The tree"`},
		{Source: claim.PaperQCon, Section: "3.2.3", Item: "configuration interface, files in /proc", Here: `different: labels and commands; docs/user-guide.md, "Where policies come from"`},
		{Source: claim.PaperQCon, Section: "3.3.1 to 3.3.3", Item: "formulas 1 to 9: shares, work conservation, minimums, maximums", Here: "alloc.TestAlgorithm1, alloc.TestQCon, alloc.TestEntitleProperties"},
		{Source: claim.PaperQCon, Section: "3.3.3", Item: "admission of reservations", Here: "alloc.TestAdmit, alloc.TestAdmitKeepsPromises"},
		{Source: claim.PaperQCon, Section: "3.3.4", Item: "algorithm 1: credits by all three policies", Here: "alloc.TestAlgorithm1"},
		{Source: claim.PaperQCon, Section: "4", Item: "figure 6: photo of the board", Here: `nothing was measured on ARM: docs/measurements.md, "Measure your machine"`},

		{Source: claim.PaperCNTC, Section: "3", Item: "figure 2: overview", Here: `docs/architecture.md, "Two call paths"`},
		{Source: claim.PaperCNTC, Section: "3.1", Item: "figure 3: CNid, Classid and IP", Here: `docs/decisions.md, "Whose packet it is"`},
		{Source: claim.PaperCNTC, Section: "3.1", Item: "figure 4: call stack", Here: `docs/architecture.md, "The path of a packet"`},
		{Source: claim.PaperCNTC, Section: "3.1", Item: "figure 5: path of packets, through an overlay too", Here: `docs/architecture.md, "The path of a packet"; identity.TestOverlayPackets`},
		{Source: claim.PaperCNTC, Section: "3.2", Item: "table 1: startup parameters", Here: `docs/user-guide.md, "Policies"; policy.TestParse`},
		{Source: claim.PaperCNTC, Section: "3.2", Item: "formulas 1 and 2: HFSC's curves from rate and latency", Here: "the peer hfsc: bench.TestHFSCCurves; Weir's own bound: alloc.TestAdmitLatency"},
		{Source: claim.PaperCNTC, Section: "3.3", Item: "algorithm 1: dynamic adjustment", Here: "alloc.TestCNTC; its effect is figure 9"},
		{Source: claim.PaperCNTC, Section: "3.3", Item: "figure 6: priority interval", Here: `different: docs/decisions.md, "Rates and queues"; bench.TestPriorityByWeight; its effect is figure 10`},

		{Source: claim.PaperLLQ, Section: "III.A", Item: "figure 1: framework", Here: `docs/sdn.md, "What happens to a packet"`},
		{Source: claim.PaperLLQ, Section: "III.B.1", Item: "formulas 1 to 5 and algorithm 1: C4.5", Here: "train.TestWeather, train.TestAverageGain, train.TestJ48"},
		{Source: claim.PaperLLQ, Section: "III.B.2", Item: "table 1: applications and QoS levels", Here: "apps.TestLevels"},
		{Source: claim.PaperLLQ, Section: "III.C.1", Item: "figure 2 and algorithm 2: packets into queues", Here: `docs/sdn.md, "Queues"; qos.TestQueues`},
		{Source: claim.PaperLLQ, Section: "III.C.1", Item: "algorithm 3: EF first, then AF, then BE", Here: `different: EF up to a maximum, AF with a minimum; docs/decisions.md, "Rates and queues"; netns.TestEFWaitsForNobody, alloc.TestClassProperties`},
		{Source: claim.PaperLLQ, Section: "IV.A and IV.B", Item: "formulas 6 to 33: queueing model", Here: `docs/model.md, "What was decided, and why"; model.TestSolver, model.TestSimulation`},
		{Source: claim.PaperLLQ, Section: "V.A", Item: "table 2: devices", Here: `docs/measurements/sdn.md, "What the queues do"`},

		{Source: claim.PaperNetmodes, Section: "2", Item: "figure 1: server and container virtualization", Here: `background: docs/netmodes.md, "What is measured"`},
		{Source: claim.PaperNetmodes, Section: "3.2", Item: "figure 2: bridge and host mode", Here: `docs/architecture.md, "The path of a packet"`},

		{Source: claim.PaperPicasso, Section: "III", Item: "figure 1: architecture", Here: `docs/edge-design.md, "How many instances"`},
		{Source: claim.PaperPicasso, Section: "III.A.1", Item: "JSON object of an edge node", Here: "node.TestPaperKeys, monitor.TestNodes"},
		{Source: claim.PaperPicasso, Section: "III.A.2", Item: "deployment descriptor", Here: `docs/edge.md, "Specifications"; spec.TestParse`},
		{Source: claim.PaperPicasso, Section: "III.A.3", Item: "service proxy", Here: `docs/edge-design.md, "Proxies' weights"; proxy.TestWeights`},
		{Source: claim.PaperPicasso, Section: "III.B", Item: "figure 2: the orchestrator's functions and interfaces", Here: `docs/edge-design.md, "What nodes report"`},
		{Source: claim.PaperPicasso, Section: "III.B.1", Item: "local and remote replication", Here: "engine.TestReplication, engine.TestAlgorithms; their effect is figure 7"},
		{Source: claim.PaperPicasso, Section: "III.B.3", Item: "service specification", Here: `docs/edge.md, "Specifications"; spec.TestSpec`},
		{Source: claim.PaperPicasso, Section: "IV.C", Item: "figure 4: containers and clients of the experiment", Here: "picasso.TestPicassoClaims: the layouts of figures 5 to 8"},
	}
}
