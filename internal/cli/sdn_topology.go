package cli

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/sdn/controller"
)

const outputSVG cmdline.Output = "svg"

func newSDNTopologyCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "topology",
		Short: "List or draw the links between switches, and where stations are",
		Long: `List the links between switches, and the ports with stations, that weir sdn run
has found. With -o svg they are drawn: switches on a circle, the lines between them
are links with their port numbers, dots are stations. A switch that is lost is
dashed, a port that stays out because of a loop is a cross.`,
		Example: "weir sdn topology\nweir sdn topology -o svg >network.svg",
		Args:    cmdline.ExactArgs(),
	}
	cmd.Flags().StringVar(&socket, "socket", defaultSDNSocket, "Unix socket of weir sdn run")
	format := cmdline.AddOutputFlag(cmd, outputSVG)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := controller.NewClient(socket).Status(cmd.Context())
		if err != nil {
			return err
		}
		switch *format {
		case cmdline.JSON:
			return cmdline.PrintJSON(cmd.OutOrStdout(), s.Links)
		case outputSVG:
			err = drawTopology(cmd.OutOrStdout(), s)
		default:
			err = printTopology(cmd.OutOrStdout(), s)
		}
		if err != nil {
			return fmt.Errorf("print: %w", err)
		}
		return nil
	}
	return cmd
}

// printTopology has a line for each end of a link and for each port with stations.
func printTopology(w io.Writer, s v1.SDN) error {
	t := textTable{header: []string{"SWITCH", "PORT", "TO"}}
	for _, n := range s.Switches {
		for _, p := range n.Ports {
			name := fmt.Sprintf("%s (%s)", cmdline.Printable(p.Name), portNumber(p.Number))
			switch {
			case p.State == "blocked":
				t.add([]string{n.DPID, name, "blocked: a loop"}, "")
			case p.PeerDPID != "" || len(p.Hosts) > 0:
				t.add([]string{n.DPID, name, portTo(p)}, "")
			}
		}
	}
	return t.print(w, cmdline.TerminalWidth(w))
}

// Measures of the drawing, in its own units.
const (
	svgSwitchWidth, svgSwitchHeight = 140.0, 30.0
	svgSpacing                      = 230.0 // between switches on their circle
	svgStationsAt                   = 52.0  // from the middle of their switch
	svgMargin                       = 130.0
	svgMostStations                 = 12 // are drawn at a switch; more are a number
)

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">
<style>
svg { color: #222; background: #fff }
@media (prefers-color-scheme: dark) { svg { color: #ddd; background: #181818 } }
.link { stroke: currentColor; stroke-width: 1.5 }
.switch { fill: #2f6fb3; stroke: currentColor }
.lost { fill: #777; stroke-dasharray: 4 3 }
.station { fill: #3a9a5c }
.blocked { stroke: #c0392b; stroke-width: 2.5 }
text { fill: currentColor; text-anchor: middle; dominant-baseline: middle }
.name { fill: #fff }
</style>
`

type svgPoint struct{ x, y float64 }

// drawTopology writes a picture that needs nothing else.
func drawTopology(w io.Writer, s v1.SDN) error {
	n := len(s.Switches)
	radius := 0.0
	if n > 1 {
		radius = max(svgSpacing*float64(n)/(2*math.Pi), svgSpacing/2)
	}
	size := 2 * (radius + svgMargin)
	middle := svgPoint{size / 2, size / 2}
	at := map[string]svgPoint{}
	for i, one := range s.Switches {
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		at[one.DPID] = svgPoint{middle.x + radius*math.Cos(angle), middle.y + radius*math.Sin(angle)}
	}
	var b strings.Builder
	fmt.Fprintf(&b, svgHead, size, size)
	fmt.Fprintf(&b, "<title>%d switches, %d links</title>\n", n, len(s.Links))
	drawLinks(&b, s.Links, at)
	for _, one := range s.Switches {
		drawSwitch(&b, one, at[one.DPID], middle)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// drawLinks draws lines; several between the same switches lie side by side.
func drawLinks(b *strings.Builder, links []v1.SDNLink, at map[string]svgPoint) {
	drawn := map[[2]string]int{}
	for _, l := range links {
		from, known := at[l.ADPID]
		to, alsoKnown := at[l.BDPID]
		if !known || !alsoKnown {
			continue
		}
		aside := float64(drawn[[2]string{l.ADPID, l.BDPID}]) * 14
		drawn[[2]string{l.ADPID, l.BDPID}]++
		if d := math.Hypot(to.x-from.x, to.y-from.y); d > 0 {
			dx, dy := -(to.y-from.y)/d*aside, (to.x-from.x)/d*aside
			from, to = svgPoint{from.x + dx, from.y + dy}, svgPoint{to.x + dx, to.y + dy}
		}
		fmt.Fprintf(b, `<line class="link" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", from.x, from.y, to.x, to.y)
		for _, end := range []struct {
			at   svgPoint
			port uint32
		}{{beside(from, to), l.APort}, {beside(to, from), l.BPort}} {
			fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%d</text>`+"\n", end.at.x, end.at.y, end.port)
		}
	}
}

// beside is next to a line, where it leaves the switch in its middle.
func beside(from, to svgPoint) svgPoint {
	d := math.Hypot(to.x-from.x, to.y-from.y)
	if d == 0 {
		return from
	}
	cos, sin := (to.x-from.x)/d, (to.y-from.y)/d
	out := min(svgSwitchWidth/2/max(math.Abs(cos), 0.01), svgSwitchHeight/2/max(math.Abs(sin), 0.01)) + 26
	return svgPoint{from.x + out*cos - 7*sin, from.y + out*sin + 7*cos}
}

// drawSwitch draws a switch, and its stations on the side that is away from the
// others.
func drawSwitch(b *strings.Builder, n v1.SDNSwitch, at, middle svgPoint) {
	class, state := "switch", ""
	if !n.Connected {
		class, state = "switch lost", ", lost"
	}
	fmt.Fprintf(b, `<g><title>%s%s: %s</title><rect class="%s" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="5"/><text class="name" x="%.1f" y="%.1f">%s</text></g>`+"\n",
		html.EscapeString(n.DPID), state, plural(n.Flows, "flow"), class, at.x-svgSwitchWidth/2, at.y-svgSwitchHeight/2, svgSwitchWidth, svgSwitchHeight,
		at.x, at.y, html.EscapeString(strings.TrimLeft(n.DPID, "0")))
	var marks []string
	more := 0
	for _, p := range n.Ports {
		if p.State == "blocked" {
			marks = append(marks, fmt.Sprintf(`<g><title>port %d: blocked, a loop</title><path class="blocked" d="M-5 -5L5 5M-5 5L5 -5"/></g>`, p.Number))
		}
		for _, mac := range p.Hosts {
			if len(marks) >= svgMostStations {
				more++
				continue
			}
			marks = append(marks, fmt.Sprintf(`<g><title>%s at port %d (%s)</title><circle class="station" r="6"/></g>`,
				html.EscapeString(mac), p.Number, html.EscapeString(cmdline.Printable(p.Name))))
		}
	}
	outward := math.Pi / 2
	if at != middle {
		outward = math.Atan2(at.y-middle.y, at.x-middle.x)
	}
	for i, mark := range marks {
		angle := outward + (float64(i)-float64(len(marks)-1)/2)*0.28
		fmt.Fprintf(b, `<g transform="translate(%.1f %.1f)">%s</g>`+"\n",
			at.x+1.6*svgStationsAt*math.Cos(angle), at.y+svgStationsAt*math.Sin(angle), mark)
	}
	if more > 0 {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%d more stations</text>`+"\n", at.x, at.y+svgSwitchHeight, more)
	}
}
