package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Native is a process outside of any container: a baseline, never advised.
const Native = "native"

// Question describes a container's traffic.
type Question struct {
	// Containers is the number of containers that send at once, this one included.
	Containers int `json:"containers"`
	// Protocol is "tcp" or "udp", MessageBytes the size of one send call.
	Protocol     string `json:"protocol"`
	MessageBytes int    `json:"message_bytes"`
	// RateBPS is the uplink's rate in bits per second; 0 means unlimited.
	RateBPS uint64 `json:"rate_bps"`
}

// Check returns an error for an invalid question.
func (q Question) Check() error {
	switch {
	case q.Containers < 1:
		return fmt.Errorf("%d containers: there must be one at least", q.Containers)
	case q.MessageBytes < 1 || q.MessageBytes > 65507:
		return fmt.Errorf("messages of %d bytes: choose 1 to 65507", q.MessageBytes)
	case q.Protocol != "tcp" && q.Protocol != "udp":
		return fmt.Errorf("protocol %q: choose tcp or udp", q.Protocol)
	}
	return nil
}

// Option is a network mode with its expected performance.
type Option struct {
	Mode string `json:"mode"`
	// Available: the host supports the mode. Controlled: Weir controls containers in it; null if it
	// was not measured with the agent.
	Available  bool  `json:"available"`
	Controlled *bool `json:"controlled"`
	// RateBPS is the payload rate of all containers together, CPUPerGbit the senders' CPU seconds
	// per gigabit; 0 if not available. RateLowBPS and RateHighBPS are the smallest and largest of
	// the repeats.
	RateBPS     float64 `json:"rate_bps"`
	RateLowBPS  float64 `json:"rate_low_bps"`
	RateHighBPS float64 `json:"rate_high_bps"`
	CPUPerGbit  float64 `json:"cpu_s_per_gbit"`
	// Note is the cost compared with the advised mode, or why the mode is not available.
	Note string `json:"note"`

	rate, cpu span
}

// Advice is the answer to a question.
type Advice struct {
	Question Question `json:"question"`
	Mode     string   `json:"mode"`
	Reason   string   `json:"reason"`
	// Options are all modes: the advised one first, then by performance.
	Options  []Option `json:"options"`
	Warnings []string `json:"warnings"`
}

const (
	// sameRate is the relative difference between runs of one case in throughput, sameCPU that in
	// CPU time.
	sameRate = 0.05
	sameCPU  = 0.10
	// noCPU is the difference in CPU use (1 is one CPU) below which it does not decide.
	noCPU = 0.01
	// nearLink is the largest factor between a link's rate and a measured rate that may stand for
	// it.
	nearLink = 4
)

// isolation orders modes by how well they isolate containers, best first; it decides between
// equals.
var isolation = []string{"bridge", "macvlan", "overlay", "ipvlan-l2", "ipvlan-l3", "macvlan-private", "host"}

// Choose returns the advice for a question.
func Choose(m Measurements, q Question) (Advice, error) {
	if err := q.Check(); err != nil {
		return Advice{}, err
	}
	a := Advice{Question: q, Warnings: append([]string{}, append(m.Disturbed(), m.once()...)...)}
	link, note := m.link(q)
	if note != "" {
		a.Warnings = append(a.Warnings, note)
	}
	a.Warnings = append(a.Warnings, m.outside(q)...)
	options, choices := m.options(q, link)
	if len(choices) == 0 {
		return a, fmt.Errorf("the measurements have no container that sends %s: measure it with weir bench netmodes --save", q.Protocol)
	}
	best, why := pick(choices)
	a.Mode = best.Mode
	a.Reason = fmt.Sprintf("%s over %s get %s in %s mode, for %s. %s",
		number(q), strings.ToUpper(q.Protocol), rateText(best.RateBPS), best.Mode, cpuText(best.CPUPerGbit), why)
	for i, one := range options {
		options[i].Note = one.against(best)
	}
	for mode, reason := range m.Unavailable {
		options = append(options, Option{Mode: mode, Note: "this host does not have it: " + reason})
	}
	slices.SortFunc(options, func(x, y Option) int {
		return cmp.Or(rank(y.Mode == best.Mode)-rank(x.Mode == best.Mode), rank(y.Available)-rank(x.Available),
			cmp.Compare(y.RateBPS, x.RateBPS), cmp.Compare(x.Mode, y.Mode))
	})
	a.Options = options
	return a, nil
}

// options returns all modes with their expected performance, and the available ones.
func (m Measurements) options(q Question, linkBPS uint64) (options, choices []Option) {
	for _, mode := range m.modes() {
		if one, ok := m.estimate(mode, q, linkBPS); ok {
			options = append(options, one)
		}
	}
	return options, slices.DeleteFunc(slices.Clone(options), func(o Option) bool { return o.Mode == Native || !o.Available })
}

func rank(first bool) int {
	if first {
		return 1
	}
	return 0
}

// equals returns the modes as fast as the fastest within noise, and of these the ones as cheap in
// CPU time as the cheapest.
func equals(choices []Option) (fast, cheap []Option) {
	fastest := slices.MaxFunc(choices, func(x, y Option) int { return cmp.Compare(x.RateBPS, y.RateBPS) })
	fast = slices.DeleteFunc(slices.Clone(choices), func(o Option) bool { return !o.rate.same(fastest.rate, sameRate) })
	least := slices.MinFunc(fast, func(x, y Option) int { return cmp.Compare(x.CPUPerGbit, y.CPUPerGbit) })
	cheap = slices.DeleteFunc(slices.Clone(fast), func(o Option) bool { return !o.sameCPU(least) })
	return fast, cheap
}

// sameCPU reports whether two modes' CPU times are equal within noise, or differ by less than noCPU
// at the rates that they reach.
func (o Option) sameCPU(other Option) bool {
	return o.cpu.same(other.cpu, sameCPU) || math.Abs(o.cpuUse()-other.cpuUse()) < noCPU
}

// cpuUse returns the senders' CPU use at the reached rate; 1 is one full CPU.
func (o Option) cpuUse() float64 { return o.CPUPerGbit * o.RateBPS / 1e9 }

// pick returns the best of the modes and the reason.
func pick(choices []Option) (best Option, why string) {
	fast, cheap := equals(choices)
	best = slices.MinFunc(cheap, func(x, y Option) int {
		return cmp.Or(rank(y.controlled())-rank(x.controlled()), order(x.Mode)-order(y.Mode))
	})
	switch {
	case len(fast) == 1:
		return best, "No other mode carries as much."
	case len(cheap) == 1:
		return best, fmt.Sprintf("No difference in throughput beyond noise: %s. Of these it takes the least processor time.", others(fast, best))
	case best.controlled():
		return best, fmt.Sprintf("No difference in throughput beyond noise, and none in processor time that counts: %s. Of these, of those that Weir controls, it keeps containers apart best.", others(cheap, best))
	}
	return best, fmt.Sprintf("No difference in throughput beyond noise, and none in processor time that counts: %s. Of these it keeps containers apart best; Weir is not known to control it here.", others(cheap, best))
}

// others names modes but one.
func others(options []Option, best Option) string {
	var names []string
	for _, one := range options {
		if one.Mode != best.Mode {
			names = append(names, one.Mode)
		}
	}
	return strings.Join(names, ", ")
}

func (o Option) controlled() bool { return o.Controlled != nil && *o.Controlled }

// order returns a mode's rank in isolation; unknown modes come last.
func order(mode string) int {
	if i := slices.Index(isolation, mode); i >= 0 {
		return i
	}
	return len(isolation)
}

// against returns what an option costs compared with the best.
func (o Option) against(best Option) string {
	if o.Mode == best.Mode {
		return "advised"
	}
	text := fmt.Sprintf("%+.0f %% throughput", (o.RateBPS/best.RateBPS-1)*100)
	if o.rate.same(best.rate, sameRate) {
		text = "no difference in throughput beyond noise"
	}
	cpu := o.CPUPerGbit / best.CPUPerGbit
	switch {
	case math.IsNaN(cpu) || math.IsInf(cpu, 0):
	case o.sameCPU(best):
		text += ", nor in processor time"
		if !o.rate.same(best.rate, sameRate) {
			text = strings.Replace(text, ", nor", ", no difference", 1)
		}
	default:
		text += fmt.Sprintf(", %.1f times the processor time for a gigabit", cpu)
	}
	switch {
	case o.Mode == Native:
		text += "; no container, to compare with"
	case o.Controlled == nil:
		text += "; not measured with Weir's agent"
	case !*o.Controlled:
		text += "; WEIR CANNOT CONTROL IT here"
	}
	return text
}

// number names who sends what.
func number(q Question) string {
	if q.Containers == 1 {
		return fmt.Sprintf("A container's %d-byte messages", q.MessageBytes)
	}
	return fmt.Sprintf("%d containers' %d-byte messages together", q.Containers, q.MessageBytes)
}

func rateText(bps float64) string {
	if bps >= 1e9 {
		return fmt.Sprintf("%.2f Gbit/s", bps/1e9)
	}
	return fmt.Sprintf("%.1f Mbit/s", bps/1e6)
}

func cpuText(seconds float64) string {
	return fmt.Sprintf("%.3g s of processor time a gigabit", seconds)
}
