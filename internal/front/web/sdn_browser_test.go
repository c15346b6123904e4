//go:build web

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/sdn/controller"
)

// fakeSDN answers as weir sdn run does.
type fakeSDN struct {
	silent, empty, one atomic.Bool
	asked              atomic.Uint64
}

func (f *fakeSDN) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen := v1.SDN{Switches: []v1.SDNSwitch{}, Links: []v1.SDNLink{}, Classes: []v1.SDNClass{}}
	if !f.empty.Load() {
		seen = f.busy()
	}
	if f.one.Load() {
		seen.Switches, seen.Links = seen.Switches[:1], nil
		seen.Switches[0].Ports, seen.Switches[0].Flows = seen.Switches[0].Ports[:1], 1
		seen.Switches[0].Ports[0].State = "degraded"
	}
	switch {
	case f.silent.Load():
		refuse(w, http.StatusBadGateway, "weir sdn run does not answer: "+hostile)
	case r.URL.Path == "/v1/sdn/topology.svg":
		w.Header().Set("Content-Type", "image/svg+xml")
		_ = controller.DrawTopology(w, seen, false)
	default:
		_ = json.NewEncoder(w).Encode(seen)
	}
}

// dpid is a switch's identifier.
func dpid(n int) string { return fmt.Sprintf("%016x", n) }

// busy is four switches in a circle, with a chord of two links.
func (f *fakeSDN) busy() v1.SDN {
	moves := 1e6 * (f.asked.Add(1) % 6) // something moves
	s := v1.SDN{Classes: []v1.SDNClass{{Class: "ef", Flows: 12, SentPackets: 9000, SentBytes: 1_200_000}, {Class: "af", Flows: 3, SentBytes: 90_000_000}, {Class: "be", Flows: 40}}}
	for n := 1; n <= 4; n++ {
		one := v1.SDNSwitch{DPID: dpid(n), Connected: n != 4, State: map[bool]string{true: "ok", false: "lost"}[n != 4], Role: "equal", Flows: 10 * n}
		one.Ports = append(one.Ports, v1.SDNPort{
			Number: 9, Name: fmt.Sprint("eth", n), Up: true, Hosts: []string{fmt.Sprintf("02:00:00:00:00:%02x", n)}, RateBPS: 100e6, SentBPS: 20e6 + moves, ReceivedBPS: 3e6, State: "ok",
			Queues: []v1.SDNQueue{
				{ID: 0, Class: "be", MinBPS: 20e6, RateBPS: 9e6 + moves, SentBytes: 4_000_000_000, DroppedPackets: 1234},
				{ID: 1, Class: "af", MinBPS: 30e6, RateBPS: 8e6},
				{ID: 2, Class: "ef", Applications: []string{"VOIP"}, MinBPS: 50e6, MaxBPS: 60e6, RateBPS: 2e6},
			},
		})
		s.Switches = append(s.Switches, one)
	}
	s.Switches[0].Ports = append(s.Switches[0].Ports, v1.SDNPort{Number: 0xfffffffe, Name: "br1"}, v1.SDNPort{Number: 8, Name: hostile, Up: true, State: "blocked", Reason: "a loop " + hostile})
	link := func(a int, aPort uint32, b int, bPort uint32, sent uint64) {
		s.Links = append(s.Links, v1.SDNLink{ADPID: dpid(a), APort: aPort, BDPID: dpid(b), BPort: bPort})
		for _, end := range []struct {
			at, to      int
			port, other uint32
			sent        uint64
		}{{a, b, aPort, bPort, sent}, {b, a, bPort, aPort, sent / 10}} {
			ports := &s.Switches[end.at-1].Ports
			*ports = append(*ports, v1.SDNPort{Number: end.port, Name: fmt.Sprint("c", end.port), Up: true, PeerDPID: dpid(end.to), PeerPort: end.other, RateBPS: 100e6, SentBPS: end.sent, State: "degraded", Reason: "its datapath ignores queues"})
		}
	}
	link(1, 1, 2, 1, 98e6)
	link(2, 2, 3, 1, 12e6+moves)
	link(3, 2, 4, 1, 0)
	link(1, 2, 4, 2, 5e5)
	link(1, 3, 3, 3, 30e6)
	link(1, 4, 3, 4, 40e6)
	return s
}

func serveSDN(t *testing.T, feed http.Handler) string {
	t.Helper()
	return servePage(t, NewSDN(feed, Pages{}, slog.New(slog.DiscardHandler)))
}

func TestSDNPage(t *testing.T) {
	t.Parallel()
	checkPage(t, "sdn", "Weir SDN", func(t *testing.T) string { return serveSDN(t, &fakeSDN{}) }, func(ctx context.Context, t *testing.T) {
		holds(ctx, t, `document.querySelectorAll(".topology svg rect").length === 4 && document.querySelectorAll(".topology line").length === 6`)
		holds(ctx, t, `document.querySelectorAll(".topology .busy").length === 1 && document.querySelectorAll(".topology .lost").length === 1`)
		holds(ctx, t, `[...document.querySelectorAll(".topology .end")].some((l) => l.textContent === "1: 98mbit")`)
		holds(ctx, t, `getComputedStyle(document.querySelector(".topology .busy")).strokeWidth === "4px"`)
		holds(ctx, t, `document.querySelectorAll("[aria-label=Switches] tbody tr").length === 4`)
		holds(ctx, t, `document.querySelectorAll("[aria-label=Ports] tbody tr").length === 17`)
		holds(ctx, t, `document.querySelectorAll("[aria-label=Queues] tbody tr").length === 12`)
		holds(ctx, t, contains("[aria-label=Queues] tbody tr", "1234"))
		holds(ctx, t, contains("[aria-label=Classes] tbody tr", "12"))
		holds(ctx, t, contains(".top", "3 switches, 100 flows"))
		// It moves by itself, and the drawing with it.
		var first string
		act(ctx, t, chromedp.Evaluate(`document.querySelector(".topology").textContent`, &first))
		holds(ctx, t, fmt.Sprintf(`document.querySelector(".topology").textContent !== %q`, first))
	})
}

// TestSDNOneSwitch: the drawing of one switch is as small as it can be, and a key says what it shows.
func TestSDNOneSwitch(t *testing.T) {
	t.Parallel()
	feed := &fakeSDN{}
	feed.one.Store(true)
	ctx := browse(t, "http://"+serveSDN(t, feed)+"/", 420, "light")
	holds(ctx, t, `document.querySelectorAll(".topology svg rect").length === 1`)
	holds(ctx, t, `(() => { const b = document.querySelector(".topology svg").getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth && b.height < 250; })()`)
	holds(ctx, t, contains(".key", "host"))
	holds(ctx, t, contains(".over", "none is in force"))
	holds(ctx, t, `document.querySelector(".top .quiet").textContent === "1 switch, 1 flow"`)
}

// What is empty says why.
func TestSDNEmptyStates(t *testing.T) {
	t.Parallel()
	feed := &fakeSDN{}
	feed.silent.Store(true)
	ctx := browse(t, "http://"+serveSDN(t, feed)+"/", 900, "light")
	holds(ctx, t, contains(".trouble", "No answer from weir sdn run yet: weir sdn run does not answer: "+hostile))
	feed.empty.Store(true)
	feed.silent.Store(false)
	holds(ctx, t, contains("main", "No switch has connected yet"))
	feed.empty.Store(false)
	holds(ctx, t, `document.querySelectorAll(".topology svg rect").length === 4`)
	feed.silent.Store(true)
	holds(ctx, t, contains(".trouble", "No answer from weir sdn run for "))
	holds(ctx, t, `document.images.length === 0 && document.title === "Weir SDN"`)
}
