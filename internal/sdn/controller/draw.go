package controller

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"unicode"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// Dimensions of the drawing, in SVG user units.
const (
	svgSwitchWidth, svgSwitchHeight = 140.0, 30.0
	svgSpacing                      = 320.0 // between neighbouring switches on the circle
	svgHostsAt                      = 52.0  // distance of the hosts from the middle of their switch
	svgMargin                       = 130.0
	svgRowMargin                    = 75.0 // above and below one row of switches
	svgMostHosts                    = 12   // hosts drawn per switch; the rest is shown as a count
	svgLinesApart                   = 28.0 // between parallel links of the same two switches
	svgLabelAt                      = 44.0 // distance of a link's label from its switch
	svgLabelHeight                  = 16.0
)

// busyPart is the fraction of a port's rate from which its link is drawn as busy.
const busyPart = 0.9

// svgStyle is the style sheet of a stand-alone drawing. A page brings its own for the same
// classes.
const svgStyle = `<style>
svg { color: #222; background: #fff }
@media (prefers-color-scheme: dark) { svg { color: #ddd; background: #181818 } }
.link { stroke: currentColor; stroke-width: 1.5 }
.busy { stroke: #c0392b; stroke-width: 4 }
.switch { fill: #2f6fb3; stroke: currentColor }
.lost { fill: #777; stroke-dasharray: 4 3 }
.host { fill: #3a9a5c }
.blocked { stroke: #c0392b; stroke-width: 2.5 }
text { fill: currentColor; text-anchor: middle; dominant-baseline: middle }
.end { paint-order: stroke; stroke: #fff; stroke-width: 4px; stroke-linejoin: round }
@media (prefers-color-scheme: dark) { .end { stroke: #181818 } }
.on { fill: #fff }
</style>
`

type svgPoint struct{ x, y float64 }

// DrawTopology writes the switches, links with their rates, and hosts as SVG. If alone is
// set, the drawing contains its own style sheet.
func DrawTopology(w io.Writer, s v1.SDN, alone bool) error {
	n := len(s.Switches)
	radius := 0.0
	if n > 1 {
		radius = max(svgSpacing*float64(n)/(2*math.Pi), svgSpacing/2)
	}
	width := 2 * (radius + svgMargin)
	height := width
	if n <= 2 { // they stand side by side
		height = 2 * svgRowMargin
	}
	middle := svgPoint{width / 2, height / 2}
	at := map[string]svgPoint{}
	for i, one := range s.Switches {
		angle := 2*math.Pi*float64(i)/float64(n) - math.Pi/2
		if n == 2 { // two switches stand side by side
			angle += math.Pi / 2
		}
		at[one.DPID] = svgPoint{middle.x + radius*math.Cos(angle), middle.y + radius*math.Sin(angle)}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">`+"\n", width, height)
	if alone {
		b.WriteString(svgStyle)
	}
	fmt.Fprintf(&b, "<title>switches: %d, links: %d</title>\n", n, len(s.Links))
	drawLinks(&b, &s, at)
	for _, one := range s.Switches {
		drawSwitch(&b, one, at[one.DPID], middle)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// drawLinks draws the links as lines; parallel links lie side by side.
func drawLinks(b *strings.Builder, s *v1.SDN, at map[string]svgPoint) {
	ports := map[v1.SDNHop]v1.SDNPort{}
	for _, n := range s.Switches {
		for _, p := range n.Ports {
			ports[v1.SDNHop{DPID: n.DPID, Out: p.Number}] = p
		}
	}
	drawn, all := map[[2]string]int{}, map[[2]string]int{}
	for _, l := range s.Links {
		all[[2]string{l.ADPID, l.BDPID}]++
	}
	for _, l := range s.Links {
		from, known := at[l.ADPID]
		to, alsoKnown := at[l.BDPID]
		if !known || !alsoKnown {
			continue
		}
		pair := [2]string{l.ADPID, l.BDPID}
		number := drawn[pair]
		drawn[pair]++
		aside := (float64(number) - float64(all[pair]-1)/2) * svgLinesApart
		if d := math.Hypot(to.x-from.x, to.y-from.y); d > 0 {
			dx, dy := -(to.y-from.y)/d*aside, (to.x-from.x)/d*aside
			from, to = svgPoint{from.x + dx, from.y + dy}, svgPoint{to.x + dx, to.y + dy}
		}
		a, z := ports[v1.SDNHop{DPID: l.ADPID, Out: l.APort}], ports[v1.SDNHop{DPID: l.BDPID, Out: l.BPort}]
		class := "link"
		if busy(a) || busy(z) {
			class = "link busy"
		}
		fmt.Fprintf(b, `<g><title>%s port %d (%s) sends %s, %s port %d (%s) sends %s</title><line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/></g>`+"\n",
			shown(l.ADPID), l.APort, shown(a.Name), policy.FormatRateShort(a.SentBPS), shown(l.BDPID), l.BPort, shown(z.Name), policy.FormatRateShort(z.SentBPS),
			class, from.x, from.y, to.x, to.y)
		farther := float64(number%2) * svgLabelHeight
		drawEnd(b, onLine(from, to, farther), l.APort, a)
		drawEnd(b, onLine(to, from, farther), l.BPort, z)
	}
}

// drawEnd writes a port's number and, if it sends, its rate.
func drawEnd(b *strings.Builder, at svgPoint, number uint32, p v1.SDNPort) {
	text := fmt.Sprint(number)
	if p.SentBPS > 0 {
		text += ": " + policy.FormatRateShort(p.SentBPS)
	}
	fmt.Fprintf(b, `<text class="end" x="%.1f" y="%.1f">%s</text>`+"\n", at.x, at.y, text)
}

// busy reports whether a port sends at busyPart of its rate or more.
func busy(p v1.SDNPort) bool {
	return p.RateBPS > 0 && float64(p.SentBPS) >= busyPart*float64(p.RateBPS)
}

// onLine returns the position of a link's label: near the switch at from, but at most 38 %
// along the line, so that the labels of both ends do not overlap.
func onLine(from, to svgPoint, farther float64) svgPoint {
	const most = 0.38 // of the line
	d := math.Hypot(to.x-from.x, to.y-from.y)
	if d == 0 {
		return from
	}
	cos, sin := (to.x-from.x)/d, (to.y-from.y)/d
	out := min(svgSwitchWidth/2/max(math.Abs(cos), 0.01), svgSwitchHeight/2/max(math.Abs(sin), 0.01))
	out = min(out+svgLabelAt+farther, most*d)
	return svgPoint{from.x + out*cos, from.y + out*sin}
}

// drawSwitch draws a switch, with its hosts on the side away from the middle of the
// drawing.
func drawSwitch(b *strings.Builder, n v1.SDNSwitch, at, middle svgPoint) {
	class, state := "switch", ""
	if !n.Connected {
		class, state = "switch lost", ", lost"
	}
	fmt.Fprintf(b, `<g><title>%s%s, flows: %d</title><rect class="%s" x="%.1f" y="%.1f" width="%.0f" height="%.0f" rx="5"/><text class="name on" x="%.1f" y="%.1f">%s</text></g>`+"\n",
		shown(n.DPID), state, n.Flows, class, at.x-svgSwitchWidth/2, at.y-svgSwitchHeight/2, svgSwitchWidth, svgSwitchHeight,
		at.x, at.y, shown(strings.TrimLeft(n.DPID, "0")))
	var marks []string
	more := 0
	for _, p := range n.Ports {
		if p.State == "blocked" {
			marks = append(marks, fmt.Sprintf(`<g><title>port %d: blocked, a loop</title><path class="blocked" d="M-5 -5L5 5M-5 5L5 -5"/></g>`, p.Number))
		}
		for _, mac := range p.Hosts {
			if len(marks) >= svgMostHosts {
				more++
				continue
			}
			marks = append(marks, fmt.Sprintf(`<g><title>%s at port %d (%s), which sends %s</title><circle class="host" r="6"/></g>`,
				shown(mac), p.Number, shown(p.Name), policy.FormatRateShort(p.SentBPS)))
		}
	}
	outward := math.Pi / 2
	if at != middle {
		outward = math.Atan2(at.y-middle.y, at.x-middle.x)
	}
	for i, mark := range marks {
		angle := outward + (float64(i)-float64(len(marks)-1)/2)*0.28
		fmt.Fprintf(b, `<g transform="translate(%.1f %.1f)">%s</g>`+"\n",
			at.x+1.7*svgHostsAt*math.Cos(angle), at.y+svgHostsAt*math.Sin(angle), mark)
	}
	if more > 0 {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f">%d more hosts</text>`+"\n", at.x, at.y+svgSwitchHeight, more)
	}
}

// shown escapes text of a switch for SVG.
func shown(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text))
}
