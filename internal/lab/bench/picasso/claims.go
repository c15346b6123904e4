package picasso

import (
	"fmt"

	"github.com/weir-project/weir/internal/lab/bench/claim"
	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/report"
)

// Reasons that several claims have.
const (
	standIn    = "The server is a stand-in whose queue was chosen to stand as many users: its losses are what it was told."
	otherBoard = "A node here is a part of a faster processor, and what its kernel does for users is not counted as the node's."
)

// paperClaim is what the paper says.
type paperClaim struct {
	section, where, says string
	// otherwise is the reason when it is not reproduced, moot why the numbers decide nothing.
	otherwise, moot string
	numbers         []claim.Number
}

// JudgeAgain judges the paper's claims on a stored report by the rules of this build.
func (r *Report) JudgeAgain() {
	var again []report.Claim
	for _, one := range r.claims() {
		judged := one.judge(r.Claims...)
		judged.About += r.tomcatOf(judged)
		again = append(again, judged)
	}
	r.Claims = report.JudgedAgain(r.Claims, again)
}

// judge returns the judgement on a claim; claim.Claim.Judge says what earlier ones are for.
func (c paperClaim) judge(earlier ...report.Claim) report.Claim {
	return claim.Claim{
		Section: c.section, Where: c.where, Says: c.says, Otherwise: c.otherwise, Moot: c.moot, Numbers: c.numbers,
		NoControl: "it is about servers and their replicas, without Weir", About: "servers and nodes, without the agent",
	}.Judge(claim.PaperPicasso, earlier...)
}

// limit returns a number that is compared with a limit or the paper's result. best is the value of a perfect server, or
// of the paper's theory; nil if neither is known.
func limit(n claim.Number, best *float64) claim.Number {
	n.IsLimit, n.Best = true, best
	return n
}

// Units of numbers that are compared with one container on one node.
const (
	unitLess    = "% less"
	unitMore    = "% more"
	unitShorter = "% shorter"
)

const (
	// nearPaper is the tolerated relative deviation from a number that another board has.
	nearPaper = 0.25
	// leastMorePercent is what counts as "significantly" more, mostAlikePercent as "almost similar".
	leastMorePercent, mostAlikePercent = 10, 5
	// leastLessPercent and leastGainPercent are what counts as less use of a node, and as a tendency similar to busybox's.
	leastLessPercent, leastGainPercent = 5, 30
)

// replicated are the servers of figures 5 to 8.
func (r Report) replicated() []string { return []string{serverBusybox, serverNginx, r.heavy()} }

// claims returns the paper's claims, by section.
func (r Report) claims() (list []paperClaim) {
	list = append(list, r.sizesClaim())
	list = append(list, r.successClaims()...)
	list = append(list, r.localClaims()...)
	list = append(list, r.remoteClaims()...)
	return append(list, r.costClaim())
}

// sizesClaim returns table I.
func (r Report) sizesClaim() paperClaim {
	c := paperClaim{
		section: "IV.A", where: "table I", says: "Images have 88 kB, 2.16 MB, 368 MB and 251 MB.",
		moot: "The paper's images are other builds for another processor: those made here have what the program needs, and busybox.",
	}
	for _, server := range r.webServers() {
		var sizes []float64
		if bytes, made := r.ImageBytes[server.name]; made {
			sizes = append(sizes, float64(bytes)/1e6)
		}
		c.numbers = append(c.numbers, claim.Like(server.name, "MB", paperImageMB(server.name), nearPaper, nil).Over(sizes))
	}
	return c
}

// paperImageMB returns the size of an image in table I.
func paperImageMB(server string) float64 {
	return map[string]float64{serverNano: 0.088, serverBusybox: 2.16, serverNginx: 368, serverTomcat: 251, serverHeavy: 251}[server]
}

// successClaims returns figure 3.
func (r Report) successClaims() []paperClaim {
	all := report.Number(100)
	success := func(server string, users int, paper float64) []claim.Number {
		name := fmt.Sprintf("%s, %d users", server, users)
		return []claim.Number{limit(claim.Like(name, claim.UnitPart, paper, nearPaper, nil).Over(r.successOf(server, users)), all)}
	}
	full := func(server string) claim.Number {
		return claim.NoLess(server+", 1000 users", claim.UnitPart, *all, all, nil).Over(r.successOf(server, 1000))
	}
	refused := "Users give up after 5 s here, ab's after 30."
	if r.Tomcat == "" {
		refused = "The bench serves tomcat's 750 kB as one page: 1000 users need 60 s of this link for it, and give up after 5 s. The paper's ab fetches one document."
	}
	const section, where = "IV.B", "figure 3"
	return []paperClaim{
		{section, where, "nano answers 99.98 % of the requests of 5 users.", "", standIn, success(serverNano, 5, 99.98)},
		{section, where, "nano answers 24.59 % of the requests of 100 users.", "", standIn, success(serverNano, 100, 24.59)},
		{
			section, where, "busybox answers 34.85 % of the requests of 500 users.",
			"Connections that find the listener's queue full are tried again by the kernel; how many come through depends on how fast the node is.", "",
			success(serverBusybox, 500, 34.85),
		},
		{
			section, where, "nginx and tomcat answer all requests of 1000 users.",
			refused, "", []claim.Number{full(serverNginx), full(r.heavy())},
		},
	}
}

// localClaims returns section IV.C, and what IV.D says of replicas on one node. Figure 8 has some of figure 5's claims again.
func (r Report) localClaims() []paperClaim {
	two, four := layout{2, 1}, layout{4, 1}
	more := func(value func(Crowd) float64) (numbers []claim.Number) {
		for _, server := range r.replicated() {
			numbers = append(numbers, limit(claim.NoLess(nameOf(server, four), unitMore, leastMorePercent, nil, nil).Over(negative(r.changeOf(server, four, value))), nil))
		}
		return numbers
	}
	divided := func() (numbers []claim.Number) {
		for _, server := range r.replicated() {
			for _, l := range []layout{two, four} {
				percent := 100 * (1 - 1/float64(l.containers))
				n := claim.Like(nameOf(server, l)+", the container that uses most", unitLess, percent, nearPaper, nil)
				numbers = append(numbers, limit(n.Over(r.changeOf(server, l, Crowd.mostContainerCPU)), &percent))
			}
		}
		return numbers
	}
	most := func(server string, l layout) []float64 { return r.each(crowdOf(server, l), Crowd.mostContainerCPU) }
	heavy := r.heavy()
	processor, load := "One container uses its node here already.", "Threads that wait for users are no load, and few requests are answered at a time."
	reaches, slow := otherBoard, otherBoard
	if heavy == serverHeavy {
		processor = "One container of busybox or nginx uses its node here already, and tomcat's page needs the link."
		load = "What stands for it answers all users with as many threads as there are processors, tomcat with one for each user."
		reaches = "The bench serves tomcat's 750 kB as one page, which needs the link: 100 users wait for 6 s of it, and give up after 5 s, which count as 5 s."
		slow = "This page needs the link, not the processor."
	}
	const percentages = " Percentages are of all that a node has; the paper's go beyond 100, as those of one of four processors do."
	list := []paperClaim{
		{
			"IV.C", "figures 5 and 8", "More containers on one node use significantly more of its processor (judged: 10 %, four against one).",
			processor, "", more(nodeCPUOf),
		},
		{
			"IV.C", "figures 5 and 8", "More containers on one node significantly raise its load (judged: 10 %, four against one).",
			"Each of the crowd's requests is a task that waits, on one container as on four.", "", more(nodeLoadOf),
		},
		{
			"IV.C", "figure 5", "More containers on one node use significantly more of its memory (judged: 10 %, four against one).",
			"What they use besides their own pages, such as buffers of connections, is shared here.", "", more(memoryOf),
		},
		{
			"IV.C", "figure 6", "With two containers on a node each uses half of the processor of one alone, with four a quarter.",
			"Containers did not use their node alike, or one alone did not use all of it.", "", divided(),
		},
		{
			"IV.C", "figure 6", "One nginx container uses about 60 % of a processor for 100 users.", otherBoard + percentages, "",
			[]claim.Number{claim.Like(nameOf(serverNginx, layout{1, 1}), claim.UnitPart, 60, nearPaper, nil).Over(most(serverNginx, layout{1, 1}))},
		},
		{
			"IV.C", "figure 6", "busybox needs four containers to keep each under 50 %: two do not.", otherBoard + percentages, "",
			[]claim.Number{
				limit(claim.Number{Name: nameOf(serverBusybox, two), Unit: claim.UnitPart, Rule: claim.AtLeast, Ideal: 50, Tolerance: 0.05}.Over(most(serverBusybox, two)), nil),
				limit(claim.Number{Name: nameOf(serverBusybox, four), Unit: claim.UnitPart, Rule: claim.AtMost, Ideal: 50}.Over(most(serverBusybox, four)), nil),
			},
		},
		r.capacityClaim(),
		{
			"IV.D", "figure 8", "tomcat drives the load of a node up to 70.", load, "",
			[]claim.Number{limit(claim.NoLess(nameOf(r.heavy(), four), "tasks", 70, report.Number(70), nil).Over(r.each(crowdOf(r.heavy(), four), func(c Crowd) float64 { return c.NodeLoadMost })), nil)},
		},
		{
			"IV.D", "figure 7", "tomcat's response time reaches 1847 ms with four containers on one node.", reaches, "",
			[]claim.Number{claim.Like(nameOf(r.heavy(), four), claim.UnitTime, 1847, nearPaper, nil).Over(r.each(crowdOf(r.heavy(), four), Crowd.waitedMS))},
		},
	}
	for _, server := range r.replicated() {
		otherwise := map[string]string{
			serverBusybox: "One container drops connections when its listener's queue is full, and they are tried again after a second; several have as many queues.",
			serverNginx:   otherBoard,
			heavy:         slow,
		}[server]
		c := paperClaim{section: "IV.D", where: "figure 7", says: server + ": replicas on the same node do not shorten the response time (judged: 5 %).", otherwise: otherwise}
		for _, l := range []layout{two, four} {
			n := claim.Number{Name: l.String(), Unit: unitShorter, Rule: claim.AtMost, Ideal: 0, Tolerance: mostAlikePercent}
			c.numbers = append(c.numbers, n.Over(r.changeOf(server, l, Crowd.waitedMS)))
		}
		list = append(list, c)
	}
	return list
}

// remoteClaims returns what sections IV.D and V say of replicas on other nodes, and of nginx.
func (r Report) remoteClaims() []paperClaim {
	shorter := func(server string, l layout) claim.Number {
		ideal := 100 * (1 - 1/float64(l.pis))
		return limit(claim.NoLess(nameOf(server, l), unitShorter, leastGainPercent, nil, nil).Over(r.changeOf(server, l, Crowd.waitedMS)), &ideal)
	}
	busybox := func(l layout, ideal, paper float64) claim.Number {
		n := claim.Number{Name: nameOf(serverBusybox, l), Unit: unitShorter, Rule: claim.Near, Ideal: ideal, Paper: &paper, Tolerance: nearPaper}
		return n.Over(r.changeOf(serverBusybox, l, Crowd.waitedMS))
	}
	four := layout{4, 4}
	less := func(value func(Crowd) float64) (numbers []claim.Number) {
		for _, server := range r.replicated() {
			numbers = append(numbers, limit(claim.NoLess(nameOf(server, four), unitLess, leastLessPercent, nil, nil).Over(r.changeOf(server, four, value)), nil))
		}
		return numbers
	}
	return []paperClaim{
		{
			"IV.D", "figure 7", "Two nodes make busybox's response time 55.01 % shorter, four 77.25 %; its theory has 50 and 75 %.", otherBoard, "",
			[]claim.Number{busybox(layout{2, 2}, 50, 55.01), busybox(four, 75, 77.25)},
		},
		{
			"IV.D", "figure 7", "nginx and tomcat gain as well from other nodes (judged: 30 % on four).", otherBoard, "",
			[]claim.Number{shorter(serverNginx, four), shorter(r.heavy(), four)},
		},
		{
			"IV.D", "figure 8", "On four nodes each uses less of its processor (judged: 5 %).", "All nodes are busy here as long as the crowd is there: it only takes less time.", "",
			less(nodeCPUOf),
		},
		{"IV.D", "figure 8", "On four nodes each has less load (judged: 5 %).", otherBoard, "", less(nodeLoadOf)},
		{
			"V", "figure 7b", "A single nginx container responds within 140 ms to 100 users.", otherBoard, "",
			[]claim.Number{claim.NoMore(nameOf(serverNginx, layout{1, 1}), claim.UnitTime, 140, nil).Over(r.each(crowdOf(serverNginx, layout{1, 1}), Crowd.waitedMS))},
		},
	}
}

// capacityClaim returns how many replicas a node stands; the paper gives no number.
func (r Report) capacityClaim() paperClaim {
	c := paperClaim{
		section: "IV.C", where: whereCapacity, says: "An edge node handles a number of replicas without exhausting its resources. (Here each is asked for an eighth of what one alone answers.)",
		otherwise: "One replica exhausted its node at once, or the largest number did not.",
	}
	for _, server := range capacityServers() {
		// One to 15: of 16, or of none, nothing was found out.
		n := claim.Number{Name: server, Unit: "replicas", Rule: claim.Near, Ideal: capacityParts, Tolerance: 1 - 1.0/capacityParts}.Over(r.replicasStood(server))
		c.numbers = append(c.numbers, n)
	}
	return c
}

// whereCapacity is the place of the claim about section IV.C, which has no figure for it.
const whereCapacity = "replicas of a node"

// replicasStood returns the largest number of a server's replicas that did not exhaust their node in each round, 0 if each did.
func (r Report) replicasStood(server string) (rounds []float64) {
	for replicas := 1; replicas <= capacityMost; replicas *= 2 {
		round := 0
		for _, c := range r.Capacity {
			if c.Server != server || c.Layout != (layout{replicas, 1}).String() {
				continue
			}
			if round == len(rounds) {
				rounds = append(rounds, 0)
			}
			if !c.exhausted() {
				rounds[round] = float64(replicas)
			}
			round++
		}
	}
	return rounds
}

// costClaim returns figure 9, of which less is better.
func (r Report) costClaim() paperClaim {
	numbers := []claim.Number{claim.NoMore("engine", "s", 3.37, nil).Over(r.EngineSeconds)}
	for _, one := range []struct {
		server string
		paper  float64
	}{{serverNano, 1.42}, {serverBusybox, 1.46}, {serverNginx, 1.44}, {r.heavy(), 1.48}} {
		numbers = append(numbers, claim.NoMore(one.server, "s", one.paper, nil).Over(r.Starts[one.server]))
	}
	return paperClaim{
		"IV.E", "figure 9", "An engine starts in 3.37 s, an instance in 1.42 to 1.48 s.", "The engine's data and images are in memory, and the machine had other work.", "", numbers,
	}
}

// PartOf returns the part of the suite that measures a claim, by where the paper has it; empty if there is none.
func PartOf(where string) string {
	switch where {
	case "table I", "figure 3":
		return PartSuccess
	case "figure 5", "figures 5 and 8", "figure 6", "figure 7", "figure 7b", "figure 8":
		return PartReplicas
	case whereCapacity:
		return PartCapacity
	case "figure 9":
		return PartCost
	}
	return ""
}

func nameOf(server string, l layout) string { return server + ", " + l.String() }

func negative(values []float64) []float64 {
	for i := range values {
		values[i] = -values[i]
	}
	return values
}

// each returns a value of a case in each round.
func (r Report) each(of crowdKey, value func(Crowd) float64) (rounds []float64) {
	for _, c := range r.Crowds {
		if keyOf(c) == of {
			rounds = append(rounds, value(c))
		}
	}
	return rounds
}

// crowdOf returns the case of a layout in figures 5 to 8.
func crowdOf(server string, l layout) crowdKey {
	return crowdKey{server: server, layout: l.String(), users: PaperCrowd}
}

// successOf returns figure 3's value in each round.
func (r Report) successOf(server string, users int) []float64 {
	return r.each(crowdKey{server, layout{1, 1}.String(), true, users}, Crowd.SuccessPercent)
}

// changeOf returns by how many percent a value is below that of 1Con-1Pi in each round, negative if above.
func (r Report) changeOf(server string, l layout, value func(Crowd) float64) (rounds []float64) {
	one, other := r.each(crowdOf(server, layout{1, 1}), value), r.each(crowdOf(server, l), value)
	for i := range min(len(one), len(other)) {
		if one[i] != 0 && other[i] != 0 {
			rounds = append(rounds, (1-other[i]/one[i])*100)
		}
	}
	return rounds
}

func meanMSOf(c Crowd) float64   { return c.MeanMS }
func nodeCPUOf(c Crowd) float64  { return c.NodeCPUPercent }
func nodeLoadOf(c Crowd) float64 { return c.NodeLoad }
func memoryOf(c Crowd) float64   { return float64(c.MemoryBytes) }

func medianOrNil(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	return report.Number(measure.SpreadOf(values).Median)
}
