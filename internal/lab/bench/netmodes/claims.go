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

const source = "Network modes of IoT containers (2018)"

// The sizes of messages in the paper.
const (
	SmallBytes = 64
	LargeBytes = 1024
)

const (
	bridge = string(testbed.ModeBridge)
	host   = string(testbed.ModeHost)
)

// alike is by which fraction a ratio may differ from the paper's to be the same
// finding: machines differ more than runs of one do.
const alike = 0.25

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
func faultsOf(r Result) *float64   { return &r.Faults.Median }
func cyclesOf(r Result) *float64   { return medianOf(r.Cycles) }
func ipcOf(r Result) *float64      { return medianOf(r.IPC) }

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
			judged := one.Judge(source)
			if judged.Judgement == report.NotMeasured && r.CountersMissing != "" && strings.Contains(one.Says, "cycle") {
				judged.Reason = "This machine has no such counters: " + strings.ReplaceAll(r.CountersMissing, "\n", "; ") + "."
			}
			list = append(list, judged)
		}
	}
	return list
}

// full is the part of its rate from which on a link is full: TCP leaves a little.
const full = 0.95

// fills reports whether only the link bounds a result.
func (l onLink) fills(r *Result) bool {
	return l.linkBPS > 0 && r != nil && r.WireBPS.Median >= full*float64(l.linkBPS)
}

// comparing makes a claim moot where both of a pair fill the link: neither could carry more
// there at any cost, so that no claim about which is faster can fail or hold.
func (l onLink) comparing(c claim.Claim, pairs ...pair) claim.Claim {
	for _, one := range pairs {
		if l.fills(one.a) && l.fills(one.b) {
			c.Moot = fmt.Sprintf("What is compared fills the link of %s here, so neither could carry more: on this link such a claim can neither fail nor hold. ", linkName(l.linkBPS))
			if slices.Contains(l.links(), 0) {
				c.Moot += "It is judged without limit."
			} else {
				c.Moot += "Measure without limit (--links none)."
			}
		}
	}
	return c
}

// nativeClaims compare a container with a native process (section 4.1).
func (l onLink) nativeClaims() []claim.Claim {
	losing := func(protocol traffic.Protocol, paperPercent float64, otherwise string) claim.Claim {
		small := pair{l.of(bridge, protocol, SmallBytes, 1), l.of(Native, protocol, SmallBytes, 1)}
		large := pair{l.of(bridge, protocol, LargeBytes, 1), l.of(Native, protocol, LargeBytes, 1)}
		var lost *float64
		if x, y := loss(small.a, small.b), loss(large.a, large.b); x != nil && y != nil {
			lost = report.Number((*x + *y) / 2)
		}
		var rounds []float64
		if x, y := small.rounds(loss), large.rounds(loss); len(x) == len(y) {
			for i := range x {
				rounds = append(rounds, (x[i]+y[i])/2)
			}
		}
		return l.comparing(claim.That("figure 3", fmt.Sprintf("A container in bridge mode loses %g %% of a native process's %s throughput.", paperPercent, strings.ToUpper(string(protocol))), otherwise,
			claim.NoMore("lost, mean of 64 and 1024 bytes", claim.UnitPart, paperPercent, lost).Over(rounds)), small, large)
	}
	container, native := l.of(bridge, traffic.TCP, SmallBytes, 1), l.of(Native, traffic.TCP, SmallBytes, 1)
	const costly = "The bridge's part of the path weighs more beside this machine's short path without it."
	faults := []claim.Number{{Name: "container", Unit: "faults/s"}}
	if container != nil && native != nil {
		faults = []claim.Number{
			claim.NoMore("container", "faults/s", 13, nil).Over(container.rounds(faultsOf)), claim.NoMore("native", "faults/s", 2, nil).Over(native.rounds(faultsOf)),
		}
	}
	return []claim.Claim{
		losing(traffic.TCP, 6, costly),
		losing(traffic.UDP, 18, costly),
		claim.That("section 4.1", "A container takes twice the cycles of a native process.",
			"A sender's thread pays for the bridge only what it does itself, and that depends on the machine.",
			likeRatio("cycles, TCP, 64 bytes", 2, alike, cyclesOf, pair{container, native})),
		claim.That("section 4.1", "A container takes twice as much of the processor as a native process (time, where the paper counts its work).",
			"A sender's thread pays for the bridge only what it does itself, and that depends on the machine.",
			likeRatio("processor time, TCP, 64 bytes", 2, alike, cpuOf, pair{container, native})),
		claim.That("section 4.1", "Page faults: 13 a second in a container, 2 in a native process.",
			"Memory is scarcer than on the paper's board.", faults...),
	}
}

// tableClaims returns what the paper concludes from tables 1 and 2: relations, because the
// absolute numbers are those of its board.
func (l onLink) tableClaims() []claim.Claim {
	tcpSmall, tcpLarge := l.of(bridge, traffic.TCP, SmallBytes, 1), l.of(bridge, traffic.TCP, LargeBytes, 1)
	udpSmall, udpLarge := l.of(bridge, traffic.UDP, SmallBytes, 1), l.of(bridge, traffic.UDP, LargeBytes, 1)
	hostSmall := l.of(host, traffic.TCP, SmallBytes, 1)
	const other = "How often a sender sleeps depends on the socket's buffer and on what pushes back: through a bridge nothing " +
		"does for UDP on this kernel, so such a sender never sleeps, and TCP fills larger buffers than the paper's kernel had."
	const work = "Behind a bridge nothing pushes back on UDP on this kernel: the sender works as fast as it can, also beyond what the link takes."
	return []claim.Claim{
		claim.That("table 1", "64-byte UDP takes 1.5 times the cycles of TCP; with 1024 bytes they are alike.", work,
			likeRatio("cycles, UDP over TCP, 64 bytes", 1597.0/985, alike, cyclesOf, pair{udpSmall, tcpSmall}),
			likeRatio("cycles, UDP over TCP, 1024 bytes", 510.0/570, alike, cyclesOf, pair{udpLarge, tcpLarge})),
		claim.That("table 1", "64-byte UDP takes 1.5 times as much of the processor as TCP (time, where the paper counts its work).", work,
			likeRatio("processor time, UDP over TCP, 64 bytes", 1597.0/985, alike, cpuOf, pair{udpSmall, tcpSmall})),
		claim.That("table 1", "64-byte UDP switches contexts more than twice as often as TCP.", other,
			likeRatio("switches, UDP over TCP, 64 bytes", 580.0/224, alike, switchesOf, pair{udpSmall, tcpSmall})),
		claim.That("table 1", "TCP with 1024 bytes switches contexts 1.5 times as often as with 64.", other,
			likeRatio("switches, 1024 over 64 bytes", 343.0/224, alike, switchesOf, pair{tcpLarge, tcpSmall})),
		claim.That("table 1", "Instructions per cycle are 0.42 to 0.51.", "Another processor.", l.ipcNumbers()...),
		claim.That("table 2", "Host mode switches contexts 1.5 times as often as bridge mode.", other,
			likeRatio("switches, host over bridge, TCP, 64 bytes", 337.0/224, alike, switchesOf, pair{hostSmall, tcpSmall})),
		claim.That("table 2", "Host mode takes about the cycles of bridge mode.", "The bridge's path takes work that host mode does not.",
			likeRatio("cycles, host over bridge, TCP, 64 bytes", 1050.0/972, alike, cyclesOf, pair{hostSmall, tcpSmall})),
	}
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
	const same = 0.05 // what the paper itself calls the same
	const limited = "What limits the sum here is the link, or two processors that also receive, not four that only send."
	return []claim.Claim{
		l.comparing(claim.That("figure 4", "A container alone sends 25 % more TCP in bridge mode than in host mode.", shorter,
			likeRatio("bridge over host, TCP, 64 bytes", 1.25, same, rateOf, alone(traffic.TCP, SmallBytes)),
			likeRatio("bridge over host, TCP, 1024 bytes", 1.25, same, rateOf, alone(traffic.TCP, LargeBytes))),
			alone(traffic.TCP, SmallBytes), alone(traffic.TCP, LargeBytes)),
		l.comparing(claim.That("figure 4", "For 64-byte UDP bridge and host mode are the same.", shorter,
			likeRatio("bridge over host, UDP, 64 bytes", 1, same, rateOf, alone(traffic.UDP, SmallBytes))), alone(traffic.UDP, SmallBytes)),
		l.comparing(claim.That("figure 4", "With 1024-byte UDP bridge mode is better than host mode by 8 %.", shorter,
			likeRatio("bridge over host, UDP, 1024 bytes", 1.08, same, rateOf, alone(traffic.UDP, LargeBytes))), alone(traffic.UDP, LargeBytes)),
		l.comparing(claim.That("figure 5", "The sum is largest with three containers, in bridge and in host mode.", limited,
			claim.Like("best number, bridge", "containers", 3, 0.01, nil).Over(l.bestCounts(bridge)),
			claim.Like("best number, host", "containers", 3, 0.01, nil).Over(l.bestCounts(host))), append(l.counts(bridge), l.counts(host)...)...),
		l.comparing(claim.That("figure 5", "With four containers bridge mode loses 31 % against host mode (host gains 45 % against bridge, says the abstract: the same number).",
			"More devices cost more here than on the paper's board.",
			claim.NoMore("lost against host, TCP, 64 bytes", claim.UnitPart, 31, loss(four.a, four.b)).Over(four.rounds(loss))), four),
	}
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
