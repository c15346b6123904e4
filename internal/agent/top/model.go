package top

import (
	"context"
	"math"
	"time"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// Model is the live display of an agent.
type Model struct {
	client *client.Client
	order  Order
	sample Sample
	err    error
	window Window
	flows  flowView
	// aroundLines is the number of terminal lines kept free above and below the display.
	aroundLines int
}

// NewModel returns a live display of the client's agent that keeps aroundLines of the terminal
// free.
func NewModel(client *client.Client, order Order, aroundLines int) *Model {
	return &Model{client: client, order: order, aroundLines: aroundLines, window: Window{Width: DefaultWidth}}
}

// Width returns the width of the terminal, in characters.
func (m *Model) Width() int { return m.window.Width }

// footLines is the number of lines below the picture.
const footLines = 2

// shown returns the picture and the window of it that fits the terminal.
func (m *Model) shown() (Picture, Window) {
	window := m.window
	if window.Height > 0 {
		window.Height = max(window.Height-footLines-m.aroundLines, 1)
		if m.err != nil {
			window.Height = max(window.Height-footLines, 1)
		}
	}
	return Compute(m.sample, m.order), window
}

func (m *Model) otherOrder() Order {
	if m.order == ByRate {
		return ByStart
	}
	return ByRate
}

func (m *Model) scroll(by int) {
	if m.flows.shown {
		_, window := m.shown()
		m.window.first = m.flows.scrolled(window, by).first
		return
	}
	picture, window := m.shown()
	m.window.first = window.scrolled(picture, by).first
}

// page returns the number of rows in a page.
func (m *Model) page() int {
	picture, window := m.shown()
	if m.flows.shown {
		return m.flows.rows(window)
	}
	return window.rows(picture)
}

// Press implements [cmdline.Picture].
func (m *Model) Press(key string) {
	switch key {
	case "up", "k":
		m.scroll(-1)
	case "down", "j":
		m.scroll(1)
	case "pgup":
		m.scroll(-m.page())
	case "pgdown", " ":
		m.scroll(m.page())
	case "home", "g":
		m.window.first = 0
	case "end", "G":
		m.scroll(math.MaxInt32)
	case "s":
		m.order, m.window.first = m.otherOrder(), 0
	case "f":
		m.flows, m.window.first = flowView{shown: !m.flows.shown}, 0
	case "left", "h":
		m.flows.choose(-1)
	case "right", "l":
		m.flows.choose(1)
	}
}

// Resize implements [cmdline.Picture].
func (m *Model) Resize(width, height int) { m.window.Width, m.window.Height = width, height }

// Question implements [cmdline.Picture].
func (m *Model) Question() func(context.Context) func() {
	withFlows := m.flows.shown
	return func(ctx context.Context) func() {
		sample, err := Ask(ctx, m.client)
		if err == nil && withFlows {
			sample.Flows, err = m.client.Flows(ctx, "", flowsPerContainer)
		}
		return func() { m.setSample(sample, err) }
	}
}

// setSample shows a sample. An error is shown below the previous sample, as the agent may be
// restarting.
func (m *Model) setSample(sample Sample, err error) {
	if m.err = err; err == nil {
		m.sample = sample
		m.flows.setSample(sample, time.Now())
	}
}

// View implements [cmdline.Picture].
func (m *Model) View() string {
	picture, window := m.shown()
	text, keys := Render(picture, window), "q to quit, s to sort by "+string(m.otherOrder())+", f for flows, arrows to scroll"
	if m.flows.shown {
		text, keys = m.flows.render(window), "q to quit, f for containers, left and right to choose one, arrows to scroll"
	}
	if m.err != nil {
		text += "\n" + cmdline.Cut(cmdline.Printable(m.err.Error()), m.window.Width) + "\n"
	}
	return text + "\n" + cmdline.Cut(keys, m.window.Width) + "\n"
}
