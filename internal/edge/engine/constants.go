package engine

// The engine's constants. `make explore` shows the effect of changing one. Times are in seconds,
// fractions between 0 and 1.
const (
	// high is the utilization from which a resource counts as short: CPU of a container or node,
	// memory, or response time relative to the specified one. Above it users queue; the rest
	// absorbs measurement noise.
	high = 0.9
	// usersHigh is the same threshold for the number of users. Users arrive in groups: the
	// remaining fifth serves those who arrive while an instance starts.
	usersHigh = 0.8
	// low is the utilization below which an instance may be stopped, or a node may receive a moved
	// one. Its distance from usersHigh exceeds the noise, so that a stopped instance is not needed
	// again at once.
	low = 0.6
	// loadHigh is the highest load average per CPU of a node: one process waits for each that runs.
	loadHigh = 2
	// minGain is the smallest relative reduction of the response time that justifies a change. It
	// also weighs each second of transfer and start-up.
	minGain = 0.1
	// horizon is the time that demand is expected to stay constant: a change has to pay off within
	// it, a failed one is not repeated within it, and one reverted within it counts as a mistake.
	horizon = 300

	// growHold exceeds one round, so that a single measurement never adds an instance.
	growHold = 1
	// shrinkHold is much longer than a start, because a wrong stop is reverted by a start.
	shrinkHold = 60
	// moveHold lies between growHold and shrinkHold: a move loses no capacity but costs a start.
	moveHold = 30
	// mostDoublings limits how often a hold or wait doubles: one minute becomes about one hour.
	mostDoublings = 6
	// shortFault is the time within which faults often end by themselves: an instance may be
	// unhealthy for so long, and after its first failure the node is avoided for so long.
	shortFault = 10
	// failureMemory is for how long at least a failure is remembered after its wait, so that the
	// next one waits longer. Instances that run for that long have recovered.
	failureMemory = 60
	// failuresBeforeWait is the number of nodes on which a service may fail until the service
	// itself, not the node, is considered broken and its starts wait.
	failuresBeforeWait = 3
	// smoothing is the time constant of measurements, at least five rounds. After settled, three
	// time constants, an old value has a weight of 5 %.
	smoothing, settled = 5, 3 * smoothing
	// jump is the relative change from which a value restarts its mean, because it is no noise.
	jump = 0.5
	// noise is the part by which two means of the same users may differ.
	noise = 0.2
	// minMeanUsers is the mean number of users below which a service counts as unused.
	minMeanUsers = 0.01

	// startTimeout is the time that a start may take beyond slowStart times the expected one,
	// because other downloads may slow the registry.
	startTimeout, slowStart = 60, 5
	// mostStarts limits the starts of one service per round, which all pull from one registry.
	mostStarts = 8

	// Defaults for unknown values, for small nodes on a local network: PiCasso's round trip
	// (section IV.D) and slightly more than its start-up time of 1.4 s (section IV.E).
	unknownRoundTrip   = 0.005
	unknownStartUp     = 2
	unknownImageBytes  = 100e6
	unknownPullBPS     = 100e6
	unknownCPUs        = 0.1
	unknownMemoryBytes = 32e6
	// UnknownAvailability is the availability assumed for an unknown node: down 3.6 days a year. It
	// has the weight of priorSeconds of observation.
	UnknownAvailability = 0.99
	priorSeconds        = 86400
	// unpacked is the disk space that an image needs per byte transferred: compressed, unpacked,
	// and the same again while unpacking.
	unpacked = 3

	// least is the smallest fraction of a capacity or response time used in divisions, so that
	// quotients are finite.
	least = 0.01
	// worstUse is the highest utilization, and that of a capacity of 0. It exceeds all that a crowd
	// can make of one instance, so that another instance always counts.
	worstUse = 1e6
	// mostMeasured bounds all measured values (users, seconds, CPUs), so that their products are
	// finite.
	mostMeasured = 1e12
	// rounding is the tolerated rounding error of a product of fractions.
	rounding = 1e-12

	// whole is 100 %: parts of a minimum are counted in hundredths.
	whole = 100
	// relayExtra is 1/a: a relay needs a sixteenth more than the rate that it forwards (divide.go).
	relayExtra = 16
	// fewHundredths is the largest part of a service's users that is ignored on a path; fewTogether
	// limits the sum of ignored parts, in hundredths.
	fewHundredths, fewTogether = 2, 10
	// hysteresis is the difference, in hundredths, from which a part is corrected. User counts are
	// accurate to two or three hundredths, and each correction is sent to agents and to all swarm
	// managers.
	hysteresis = 5
	// othersOff is how much the division of another weir-edge may differ, in hundredths of the minimum:
	// the hysteresis of both, or what each ignores as too small.
	othersOff = 12

	// mostConflicts limits the attempts to change the ledger while other managers change it.
	mostConflicts = 20
	// ruleCost bounds the evaluation of a rule for one alternative, in CEL cost units; ten lines
	// need about 100. mostRules bounds the cache of compiled rules.
	ruleCost, mostRules = 10_000, 10_000
	// MaxAlternatives is the number of alternatives that a decision lists.
	MaxAlternatives = 5
)
