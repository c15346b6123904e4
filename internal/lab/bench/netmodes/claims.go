package netmodes

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
	"github.com/weir-project/weir/internal/lab/testbed"
	"github.com/weir-project/weir/internal/lab/traffic"
)

// The paper measured one board, whose four slow processors and wireless link of
// 20 Mbit/s were both near their limits. So its claims are judged twice: on a link
// of its rate, and on one that only the processors limit.

// The sizes of messages in the paper.
const (
	SmallBytes = 64
	LargeBytes = 1024
)

const (
	bridge = string(testbed.ModeBridge)
	host   = string(testbed.ModeHost)
)

const (
	// alike is by which fraction a number may differ from the paper's to be the same
	// finding: machines differ more than runs of one do.
	alike = 0.25
	// same is what the paper itself calls the same throughput, similar what it calls almost the same parameter: of its
	// tables' the number of cycles differs most, by 8 %.
	same, similar = 0.05, 0.1
)

// onLink looks numbers up for one link, without the agent.
type onLink struct {
	Report
	linkBPS uint64
}

// of returns the result of senders in a mode; nil if there is none.
func (l onLink) of(mode string, protocol traffic.Protocol, messageBytes, containers int) *Result {
	return l.find(Case{mode, protocol, messageBytes, containers, l.linkBPS, false})
}

// Values of results, nil where the machine does not count them.
func rateOf(r Result) *float64     { return &r.RateBPS.Median }
func cpuOf(r Result) *float64      { return &r.CPU.Median }
func switchesOf(r Result) *float64 { return &r.Switches.Median }
func cyclesOf(r Result) *float64   { return medianOf(r.Cycles) }
func ipcOf(r Result) *float64      { return medianOf(r.IPC) }

// faultsOf and migrationsOf count one event in a run at least: less than that is not told apart.
func (l onLink) faultsOf(r Result) *float64     { return l.oneAtLeast(allFaultsOf(r)) }
func (l onLink) migrationsOf(r Result) *float64 { return l.oneAtLeast(allMigrationsOf(r)) }

func allFaultsOf(r Result) *float64     { return &r.Faults.Median }
func allMigrationsOf(r Result) *float64 { return medianOf(r.Migrations) }

func (l onLink) oneAtLeast(perSecond *float64) *float64 {
	if perSecond == nil {
		return nil
	}
	return report.Number(max(*perSecond, 1/max(l.DurationS, 1)))
}

func medianOf(s *measure.Spread) *float64 {
	if s == nil {
		return nil
	}
	return &s.Median
}

// ratio returns a's value divided by b's; nil if one is unknown or b's is 0.
func ratio(value func(Result) *float64, a, b *Result) *float64 {
	if a == nil || b == nil {
		return nil
	}
	x, y := value(*a), value(*b)
	if x == nil || y == nil || *y == 0 {
		return nil
	}
	return report.Number(*x / *y)
}

// loss returns by how many percent a's rate is below b's; nil if one is unknown.
func loss(a, b *Result) *float64 {
	r := ratio(rateOf, a, b)
	if r == nil {
		return nil
	}
	return report.Number((1 - *r) * 100)
}

// pair is two results that are compared.
type pair struct{ a, b *Result }

// rounds returns a comparison of the two in each round; none if they were not measured as often.
func (p pair) rounds(compared func(a, b *Result) *float64) (values []float64) {
	if p.a == nil || p.b == nil || p.a.Runs != p.b.Runs {
		return nil
	}
	for i := range p.a.Runs {
		a, b := p.a.round(i), p.b.round(i)
		if v := compared(&a, &b); v != nil {
			values = append(values, *v)
		}
	}
	return values
}

// likeRatio returns the ratio of two results, which should equal the paper's within tolerance.
func likeRatio(name string, paper, tolerance float64, value func(Result) *float64, p pair) claim.Number {
	return claim.Like(name, claim.UnitOf, paper, tolerance, ratio(value, p.a, p.b)).
		Over(p.rounds(func(a, b *Result) *float64 { return ratio(value, a, b) }))
}

// sameRatio returns the ratio of two results, which the paper calls almost the same; paper is what its tables have.
func sameRatio(name string, paper float64, value func(Result) *float64, p pair) claim.Number {
	n := likeRatio(name, paper, alike, value, p)
	n.Ideal, n.IsLimit = 1, false
	return n
}

// mean returns a number measured as the mean of a comparison over pairs, in each round if all have as many.
func mean(n claim.Number, compared func(a, b *Result) *float64, pairs ...pair) claim.Number {
	sum, rounds := 0.0, make([][]float64, len(pairs))
	for i, one := range pairs {
		v := compared(one.a, one.b)
		if v == nil {
			return n
		}
		sum, rounds[i] = sum+*v, one.rounds(compared)
	}
	n.Measured = report.Number(sum / float64(len(pairs)))
	means := make([]float64, len(rounds[0]))
	for _, of := range rounds {
		if len(of) != len(means) {
			return n
		}
		for i, v := range of {
			means[i] += v / float64(len(pairs))
		}
	}
	return n.Over(means)
}

// sectioned sets the section of claims.
func sectioned(section string, claims ...claim.Claim) []claim.Claim {
	for i := range claims {
		claims[i].Section = section
	}
	return claims
}

// JudgeAgain judges the paper's claims on a stored report by the rules of this build.
func (r *Report) JudgeAgain() {
	rounds := claim.RoundsOf(r.Quantities)
	for i := range r.Results {
		one := &r.Results[i]
		of := one.settingName() + ", " + one.what()
		rounds.Restore(of, "throughput", &one.RateBPS)
		rounds.Restore(of, "senders' processor time", &one.CPU)
		rounds.Restore(of, "context switches", &one.Switches)
		rounds.Restore(of, "page faults", &one.Faults)
		rounds.Restore(of, "migrations", one.Migrations)
		rounds.Restore(of, "cycles", one.Cycles)
		rounds.Restore(of, "instructions per cycle", one.IPC)
	}
	r.Claims = report.JudgedAgain(r.Claims, r.judge())
}

// judge judges the paper's claims on every link.
func (r Report) judge() []report.Claim {
	var list []report.Claim
	for _, link := range r.links() {
		on := onLink{r, link}
		claims := append(on.nativeClaims(), on.tableClaims()...)
		for _, one := range append(claims, on.modeClaims()...) {
			one.Where += ", " + linkName(link)
			one.NoControl = "it compares network modes, without Weir"
			one.About = "the network modes, without the agent"
			judged := one.Judge(claim.PaperNetmodes, r.Claims...)
			if judged.Judgement == report.NotMeasured && one.Moot == "" && r.CountersMissing != "" && slices.ContainsFunc(counted, func(word string) bool { return strings.Contains(one.Says, word) }) {
				judged.Reason = "This machine has no such counters: " + strings.ReplaceAll(r.CountersMissing, "\n", "; ") + "."
			}
			list = append(list, judged)
		}
	}
	return list
}

// counted are words of claims about performance counters.
var counted = []string{"cycle", "migrates"}

// full is the part of its rate from which on a link is full: TCP leaves a little.
const full = 0.95

// fills reports whether only the link bounds a result.
func (l onLink) fills(r *Result) bool {
	return l.linkBPS > 0 && r != nil && r.WireBPS.Median >= full*float64(l.linkBPS)
}

// moot returns why a claim about which of a pair is faster can neither fail nor hold where both fill the link: neither could
// carry more there at any cost; empty if it can.
func (l onLink) moot(pairs ...pair) string {
	for _, one := range pairs {
		if l.fills(one.a) && l.fills(one.b) {
			return fmt.Sprintf("What is compared fills the link of %s here, so neither could carry more: on this link such a claim can neither fail nor hold.", linkName(l.linkBPS))
		}
	}
	return ""
}

// comparing returns a claim about which of a pair is faster, which says where it is judged if it is moot here.
func (l onLink) comparing(c claim.Claim, pairs ...pair) claim.Claim {
	if c.Moot = l.moot(pairs...); c.Moot == "" {
		return c
	}
	if slices.Contains(l.links(), 0) {
		c.Moot += " It is judged without limit."
	} else {
		c.Moot += " Measure without limit (--links none)."
	}
	return c
}

// leastEvents is how many events a run of each of two has to have to be compared: a ratio of fewer is chance.
const leastEvents = 10

// counting returns a claim about how often an event happens to a pair, which is moot if it is rare in one.
func (l onLink) counting(events string, perSecond func(Result) *float64, p pair, c claim.Claim) claim.Claim {
	if p.a == nil || p.b == nil {
		return c
	}
	a, b := perSecond(*p.a), perSecond(*p.b)
	if a != nil && b != nil && min(*a, *b)*l.DurationS < leastEvents {
		c.Moot = fmt.Sprintf("Runs of %g s have %.3g and %.3g %s: a ratio of fewer than %d is chance.", l.DurationS, *a*l.DurationS, *b*l.DurationS, events, leastEvents)
	}
	return c
}

// only returns the options of the cases that claims about a figure, a table or the text are judged by.
func only(where string) Options {
	o := Options{Modes: []string{bridge, host}, Protocols: []traffic.Protocol{traffic.TCP, traffic.UDP}, MessageBytes: []int{SmallBytes, LargeBytes}, Containers: 1}
	switch where {
	case "figure 3", "conclusion":
		o.Modes = []string{Native, bridge}
	case "table 1":
		o.Modes = []string{bridge}
	case "table 2":
		o.Protocols, o.MessageBytes = []traffic.Protocol{traffic.TCP}, []int{SmallBytes}
	case "figure 5":
		o.Protocols, o.MessageBytes, o.Containers = []traffic.Protocol{traffic.TCP}, []int{SmallBytes}, 4
	case inText:
		o.Modes = []string{Native, bridge, host}
	}
	return o
}

// OnlyOf returns the flags of weir bench netmodes for the cases that a claim of the page is judged by; empty of none.
func OnlyOf(where string) string {
	where, link, found := strings.Cut(where, ", ")
	if !found {
		return ""
	}
	if link = strings.ReplaceAll(link, " Mbit/s", "mbit"); link == linkName(0) {
		link = "none"
	}
	o := only(where)
	return fmt.Sprintf("--modes %s --protocols %s --bytes %s --containers %d --links %s --agent without", commas(o.Modes), commas(o.Protocols), commas(o.MessageBytes), o.Containers, link)
}

// commas returns values as a flag takes them.
func commas[T any](values []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(values), "[]"), " ", ",")
}

// inText is the place of claims that the paper makes in its text only.
const inText = "text"

// nativeClaims compare a container with a native process (section 4.1).
func (l onLink) nativeClaims() []claim.Claim {
	against := func(protocol traffic.Protocol) []pair {
		return []pair{
			{l.of(bridge, protocol, SmallBytes, 1), l.of(Native, protocol, SmallBytes, 1)},
			{l.of(bridge, protocol, LargeBytes, 1), l.of(Native, protocol, LargeBytes, 1)},
		}
	}
	sizes := func(protocol traffic.Protocol) pair {
		return pair{l.of(bridge, protocol, LargeBytes, 1), l.of(bridge, protocol, SmallBytes, 1)}
	}
	lost := func(what string, paperPercent float64, pairs []pair) claim.Number {
		return mean(claim.Like("lost, mean of "+what, claim.UnitPart, paperPercent, alike, nil), loss, pairs...)
	}
	losing := func(protocol traffic.Protocol, paperPercent float64) claim.Claim {
		return l.comparing(claim.That("figure 3", fmt.Sprintf("A container in bridge mode loses %g %% of a native process's %s throughput.", paperPercent, strings.ToUpper(string(protocol))),
			otherPath, lost("64 and 1024 bytes", paperPercent, against(protocol))), against(protocol)...)
	}
	both := append(against(traffic.TCP), against(traffic.UDP)...)
	container := against(traffic.TCP)[0]
	const other = "A sender's thread pays for the bridge only what it does itself, and that depends on the machine."
	return append(sectioned("4.1",
		losing(traffic.TCP, 6),
		losing(traffic.UDP, 18),
		claim.That(inText, "A container takes twice the cycles of a native process.", other,
			likeRatio("cycles, TCP, 64 bytes", 2, alike, cyclesOf, container)),
		claim.That(inText, "A container takes twice as much of the processor as a native process (time, where the paper counts its work).", other,
			likeRatio("processor time, TCP, 64 bytes", 2, alike, cpuOf, container)),
		l.counting("page faults", allFaultsOf, container, claim.That(inText, "Page faults are frequent in a container, 13 a second against 2 in a native process: 6.5 times as many.",
			"A container's memory is not limited here, nor scarce as on the paper's board. Less than one fault in a run counts as one.",
			likeRatio("faults, container over native, TCP, 64 bytes", 13./2, alike, l.faultsOf, container))),
		l.comparing(claim.That(inText, "A container's TCP throughput is almost the same for 64 and 1024 bytes.",
			"Each message is a system call here; Netperf of the paper hands 16 KB to the kernel at once, whatever their size.",
			claim.Number{Name: "TCP, 1024 over 64 bytes", Unit: claim.UnitOf, Ideal: 1, Tolerance: similar}.Over(sizes(traffic.TCP).rounds(rateRatio))), sizes(traffic.TCP)),
		l.comparing(claim.That(inText, "A container's UDP throughput changes with the size, and is lower for 64 bytes.",
			"The system calls and packets of small messages are no limit here.",
			claim.Number{Name: "UDP, 1024 over 64 bytes", Unit: claim.UnitOf, Rule: claim.AtLeast, Ideal: 1 + similar}.Over(sizes(traffic.UDP).rounds(rateRatio))), sizes(traffic.UDP)),
		l.counting("migrations", allMigrationsOf, sizes(traffic.TCP), claim.That(inText, "A sender of 1024 bytes by TCP migrates to another processor four times a second, twice as often as one of 64 bytes.",
			"Small messages keep a sender as busy as large ones here, and two processors leave little choice. Less than one migration in a run counts as one.",
			likeRatio("migrations, TCP, 1024 over 64 bytes", 2, alike, l.migrationsOf, sizes(traffic.TCP))))),
		sectioned("5", l.comparing(claim.That("conclusion", "The throughput of containers is 12 % lower than that of native processes, on average.", otherPath,
			lost("TCP and UDP, 64 and 1024 bytes", 12, both)), both...))...)
}

// otherPath is why containers and native processes compare otherwise than on the paper's board.
const otherPath = "The bridge's part of the path weighs otherwise beside this machine's path without it."

func rateRatio(a, b *Result) *float64 { return ratio(rateOf, a, b) }

// tableClaims returns what the paper concludes from tables 1 and 2: relations, because the
// absolute numbers are those of its board.
func (l onLink) tableClaims() []claim.Claim {
	tcpSmall, tcpLarge := l.of(bridge, traffic.TCP, SmallBytes, 1), l.of(bridge, traffic.TCP, LargeBytes, 1)
	udpSmall, udpLarge := l.of(bridge, traffic.UDP, SmallBytes, 1), l.of(bridge, traffic.UDP, LargeBytes, 1)
	small, large, modes := pair{udpSmall, tcpSmall}, pair{udpLarge, tcpLarge}, pair{l.of(host, traffic.TCP, SmallBytes, 1), tcpSmall}
	const other = "How often a sender sleeps depends on the socket's buffer and on what pushes back: through a bridge nothing " +
		"does for UDP on this kernel, so such a sender never sleeps, and TCP fills larger buffers than the paper's kernel had."
	const work = "Behind a bridge nothing pushes back on UDP on this kernel: the sender works as fast as it can, also beyond what the link takes."
	const path = "The bridge's path takes work that host mode does not."
	return append(sectioned("4.1",
		claim.That("table 1", "64-byte UDP takes 1.5 times the cycles of TCP (1.62 times by the table).", work,
			likeRatio("cycles, UDP over TCP, 64 bytes", 1597.0/985, alike, cyclesOf, small)),
		claim.That("table 1", "64-byte UDP takes 1.5 times as much of the processor as TCP (1.62 times by the table; time, where the paper counts its work).", work,
			likeRatio("processor time, UDP over TCP, 64 bytes", 1597.0/985, alike, cpuOf, small)),
		claim.That("table 1", "64-byte UDP switches contexts twice as often as TCP (2.59 times by the table).", other,
			atLeastRatio("switches, UDP over TCP, 64 bytes", 2, 580.0/224, switchesOf, small)),
		claim.That("table 1", "With 1024 bytes UDP and TCP take almost the same cycles and instructions per cycle.", work,
			sameRatio("cycles, UDP over TCP, 1024 bytes", 510.0/570, cyclesOf, large), sameRatio("instructions per cycle, UDP over TCP, 1024 bytes", 0.45/0.42, ipcOf, large)),
		claim.That("table 1", "With 1024 bytes UDP and TCP have almost as many context switches and page faults.", other,
			sameRatio("switches, UDP over TCP, 1024 bytes", 341.0/343, switchesOf, large), sameRatio("faults, UDP over TCP, 1024 bytes", 6.0/5, l.faultsOf, large)),
		claim.That("table 1", "TCP with 1024 bytes switches contexts more often than with 64 (1.53 times by the table).", other,
			likeRatio("switches, 1024 over 64 bytes", 343.0/224, alike, switchesOf, pair{tcpLarge, tcpSmall})),
		claim.That("table 1", "Instructions per cycle are 0.42 to 0.51.", "Another processor.", l.ipcNumbers()...)),
		sectioned("4.2",
			claim.That("table 2", "Host mode switches contexts 50 % more often than bridge mode.", other,
				likeRatio("switches, host over bridge, TCP, 64 bytes", 337.0/224, alike, switchesOf, modes)),
			claim.That("table 2", "Host mode takes about the cycles, and the instructions per cycle, of bridge mode.", path,
				sameRatio("cycles, host over bridge, TCP, 64 bytes", 1050.0/972, cyclesOf, modes), sameRatio("instructions per cycle, host over bridge, TCP, 64 bytes", 0.49/0.51, ipcOf, modes)),
			l.counting("page faults", allFaultsOf, modes, claim.That("table 2", "Host mode has about as many page faults as bridge mode.", "Less than one fault in a run counts as one.",
				sameRatio("faults, host over bridge, TCP, 64 bytes", 14.0/13, l.faultsOf, modes))))...)
}

// atLeastRatio returns the ratio of two results, which should be at least the factor of the paper's text; paper is what its tables have.
func atLeastRatio(name string, factor, paper float64, value func(Result) *float64, p pair) claim.Number {
	n := claim.NoLess(name, claim.UnitOf, factor, &paper, ratio(value, p.a, p.b))
	n.IsLimit = true
	return n.Over(p.rounds(func(a, b *Result) *float64 { return ratio(value, a, b) }))
}

// ipcNumbers returns table 1's instructions per cycle.
func (l onLink) ipcNumbers() []claim.Number {
	var numbers []claim.Number
	for _, cell := range paperTable1 {
		n := claim.Like("instructions per cycle, "+cell.what(), "", cell.ipc, alike, nil)
		if one := l.of(bridge, cell.Protocol, cell.MessageBytes, 1); one != nil {
			n = n.Over(one.rounds(ipcOf))
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// modeClaims compare bridge and host mode, alone and together (section 4.2).
func (l onLink) modeClaims() []claim.Claim {
	alone := func(protocol traffic.Protocol, bytes int) pair {
		return pair{l.of(bridge, protocol, bytes, 1), l.of(host, protocol, bytes, 1)}
	}
	four := pair{l.of(bridge, traffic.TCP, SmallBytes, 4), l.of(host, traffic.TCP, SmallBytes, 4)}
	const shorter = "Host mode's path is the bridge's without the bridge: nothing on it makes it slower here."
	const limited = "What limits the sum here is the link, or two processors that also receive, not four that only send."
	both := []pair{alone(traffic.TCP, SmallBytes), alone(traffic.TCP, LargeBytes)}
	claims := []claim.Claim{
		l.comparing(claim.That("figure 4", "A container alone sends 25 % more TCP in bridge mode than in host mode, on average.", shorter,
			mean(claim.Like("bridge over host, TCP, mean of 64 and 1024 bytes", claim.UnitOf, 1.25, same, nil), rateRatio, both...)), both...),
		l.comparing(claim.That("figure 4", "For 64-byte UDP bridge and host mode are the same.", shorter,
			likeRatio("bridge over host, UDP, 64 bytes", 1, same, rateOf, alone(traffic.UDP, SmallBytes))), alone(traffic.UDP, SmallBytes)),
		l.comparing(claim.That("figure 4", "With 1024-byte UDP bridge mode is better than host mode by 8 %.", shorter,
			likeRatio("bridge over host, UDP, 1024 bytes", 1.08, same, rateOf, alone(traffic.UDP, LargeBytes))), alone(traffic.UDP, LargeBytes)),
		l.comparing(claim.That("figure 5", "The sum is largest with three containers, in bridge and in host mode.", limited,
			claim.Like("best number, bridge", "containers", 3, 0.01, nil).Over(l.bestCounts(bridge)),
			claim.Like("best number, host", "containers", 3, 0.01, nil).Over(l.bestCounts(host))), append(l.counts(bridge), l.counts(host)...)...),
		l.comparing(claim.That("figure 5", "With four containers bridge mode loses 31 % against host mode (host gains 45 % against bridge, says the abstract: the same number).",
			"More devices cost more here than on the paper's board.",
			claim.Like("lost against host, TCP, 64 bytes", claim.UnitPart, 31, alike, loss(four.a, four.b)).Over(four.rounds(loss))), four),
	}
	if l.linkBPS == PaperLinkBPS { // of other links the paper tells no difference
		more := claim.That(inText, "With 64-byte TCP bridge and host mode are 3 Mbit/s apart in throughput.", shorter,
			claim.Like("bridge more than host, TCP, 64 bytes", claim.UnitRate, 3, alike, moreMbps(both[0].a, both[0].b)).Over(both[0].rounds(moreMbps)))
		more.Moot = l.moot(both[0])
		claims = append(claims, more)
	}
	return sectioned("4.2", claims...)
}

// moreMbps returns by how many Mbit/s a's rate is above b's; nil if one is unknown.
func moreMbps(a, b *Result) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return report.Number((a.RateBPS.Median - b.RateBPS.Median) / 1e6)
}

// counts returns the results of one to four containers, each with that of one container more.
func (l onLink) counts(mode string) (pairs []pair) {
	for count := 1; count < 4; count++ {
		pairs = append(pairs, pair{l.of(mode, traffic.TCP, SmallBytes, count), l.of(mode, traffic.TCP, SmallBytes, count+1)})
	}
	return pairs
}

// bestCounts returns, of each round, the number of containers of 1 to 4 from which on more do not send more
// together; none unless all four were measured. Less than 2 % is no difference.
func (l onLink) bestCounts(mode string) (rounds []float64) {
	const noise = 0.02
	counts, runs := [4]*Result{}, 0
	for i := range counts {
		if counts[i] = l.of(mode, traffic.TCP, SmallBytes, i+1); counts[i] == nil {
			return nil
		}
		runs = max(runs, counts[i].Runs)
	}
	for round := range runs {
		best, bestBPS := 0, 0.0
		for i, one := range counts {
			if rate := one.round(round).RateBPS.Median; best == 0 || rate > bestBPS*(1+noise) {
				best, bestBPS = i+1, rate
			}
		}
		rounds = append(rounds, float64(best))
	}
	return rounds
}

// paperCell is a column of the paper's tables.
type paperCell struct {
	mode         string
	Protocol     traffic.Protocol
	MessageBytes int
	// cycles are millions, as the tables give them, without a time.
	cycles, switches, faults, ipc float64
}

func (c paperCell) what() string {
	return fmt.Sprintf("%s, %s, %d bytes", c.mode, c.Protocol, c.MessageBytes)
}

// Tables 1 and 2 of the paper.
var (
	paperTable1 = []paperCell{
		{bridge, traffic.TCP, SmallBytes, 985, 224, 13, 0.51},
		{bridge, traffic.TCP, LargeBytes, 570, 343, 5, 0.42},
		{bridge, traffic.UDP, SmallBytes, 1597, 580, 6, 0.48},
		{bridge, traffic.UDP, LargeBytes, 510, 341, 6, 0.45},
	}
	paperTable2 = []paperCell{
		{bridge, traffic.TCP, SmallBytes, 972, 224, 13, 0.51},
		{host, traffic.TCP, SmallBytes, 1050, 337, 14, 0.49},
	}
)

// paperTables returns tables 1 and 2 with this machine's numbers beside them.
func (r Report) paperTables() []report.Table {
	var tables []report.Table
	for _, link := range r.links() {
		l := onLink{r, link}
		for number, cells := range [][]paperCell{paperTable1, paperTable2} {
			t := report.Table{
				Title: fmt.Sprintf("Table %d of the paper and this machine, one sender, %s", number+1, linkName(link)),
				Header: []string{
					"SENT", "CYCLES/S, 10^6: PAPER", "HERE", "SWITCHES/S: PAPER", "HERE", "FAULTS/S: PAPER", "HERE", "IPC: PAPER", "HERE", "CPU S HERE",
				},
			}
			for _, cell := range cells {
				one := l.of(cell.mode, cell.Protocol, cell.MessageBytes, 1)
				if one == nil {
					continue
				}
				t.Add(cell.what(), fmt.Sprint(cell.cycles), spreadText(one.Cycles, 1e-6),
					fmt.Sprint(cell.switches), spreadText(&one.Switches, 1), fmt.Sprint(cell.faults), spreadText(&one.Faults, 1),
					fmt.Sprint(cell.ipc), spreadText(one.IPC, 1), spreadText(&one.CPU, 1))
			}
			tables = append(tables, report.Filled(t)...)
		}
	}
	return tables
}
