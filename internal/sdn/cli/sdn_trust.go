package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/core"
	"github.com/weir-project/weir/internal/sdn/ovsdb"
	"github.com/weir-project/weir/internal/sdn/topology"
	"github.com/weir-project/weir/internal/share/policy"
)

// parseTrust returns the ports of --trust, or nil if there are none. The bound of their EF follows from
// the queues and the rate: the one given, or the one in the database.
func parseTrust(texts []string, o ovsdb.Options, known func(topology.Port) uint64) (*core.Trust, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	trust := &core.Trust{EFBoundBPS: func(at topology.Port, port string) (uint64, error) {
		rate := cmp.Or(o.RateOf(port), known(at))
		if rate == 0 {
			return 0, fmt.Errorf("the port's rate is not known, which its EF is bounded by: give it with --rate %s=RATE", port)
		}
		return o.Queues.EFBound(rate)
	}}
	for _, text := range texts {
		p, err := parseTrusted(text)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(trust.Ports, func(other core.TrustedPort) bool {
			return other.Port == p.Port && (other.Switch == p.Switch || other.Switch == 0 || p.Switch == 0)
		}) {
			return nil, cmdline.Usagef("--trust %s: the port is given twice: write it once, with or without its switch", text)
		}
		trust.Ports = append(trust.Ports, p)
	}
	return trust, nil
}

// parseTrusted parses PORT or SWITCH:PORT.
func parseTrusted(text string) (p core.TrustedPort, err error) {
	dpid, port, both := strings.Cut(text, ":")
	if !both {
		dpid, port = "", text
	}
	if both {
		number, err := strconv.ParseUint(dpid, 16, 64)
		if err != nil || number == 0 {
			return p, cmdline.Usagef("--trust %s: %q is no datapath identifier: write SWITCH:PORT as weir sdn ps shows them, such as 00000000000000ab:eth1", text, dpid)
		}
		p.Switch = topology.DPID(number)
	}
	if p.Port = port; port == "" || strings.ContainsAny(port, "=, ") {
		return p, cmdline.Usagef("--trust %s: want PORT or SWITCH:PORT, such as eth1 or 00000000000000ab:eth1", text)
	}
	return p, nil
}

// trustNote returns what to say of a port that is to be trusted.
func trustNote(t *v1.SDNTrust) string {
	switch {
	case t == nil:
		return ""
	case t.Refused != "":
		return "not trusted: " + t.Refused
	case t.EFDroppedPackets > 0:
		return fmt.Sprintf("trusted; of the EF that came in, what was above %s was dropped: %s", policy.FormatRate(t.EFBoundBPS), cmdline.Counted(int(t.EFDroppedPackets), "packet"))
	}
	return fmt.Sprintf("trusted: up to %s of EF may come in", policy.FormatRate(t.EFBoundBPS))
}

// printMarks prints which marks have which class if a port is to be trusted.
func printMarks(w io.Writer, s v1.SDN) error {
	trusted := func(p v1.SDNPort) bool { return p.Trust != nil }
	if !slices.ContainsFunc(s.Switches, func(n v1.SDNSwitch) bool { return slices.ContainsFunc(n.Ports, trusted) }) {
		return nil
	}
	t := cmdline.TextTable{Header: []string{"CLASS", "WRITTEN", "MARKS (DSCP)"}}
	for _, class := range []v1.Class{v1.ClassEF, v1.ClassAF, v1.ClassBE} {
		text := policy.FormatMarks(class)
		if class == v1.ClassBE {
			text += ", all others"
		}
		t.Add([]string{string(class), strconv.Itoa(int(policy.MarkOf(class))), text}, "")
	}
	fmt.Fprintln(w)
	if err := t.Print(w, cmdline.TerminalWidth(w)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
