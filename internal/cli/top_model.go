package cli

import (
	"context"
	"math"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/cmdline"
)

// topModel is the live picture.
type topModel struct {
	client   *client.Client
	interval time.Duration
	order    topOrder
	sample   topSample
	err      error
	window   topWindow
	flows    topFlows
	// aroundLines are lines of the terminal that others write on.
	aroundLines int
}

// footLines are those below the picture.
const footLines = 2

// shown is the picture and the part of it that the terminal has room for.
func (m *topModel) shown() (topPicture, topWindow) {
	window := m.window
	if window.height > 0 {
		window.height = max(window.height-footLines-m.aroundLines, 1)
		if m.err != nil {
			window.height = max(window.height-footLines, 1)
		}
	}
	return computeTop(m.sample, m.order), window
}

func (m *topModel) otherOrder() topOrder {
	if m.order == byRate {
		return byStart
	}
	return byRate
}

func (m *topModel) scroll(by int) {
	if m.flows.shown {
		_, window := m.shown()
		m.window.first = m.flows.scrolled(window, by).first
		return
	}
	picture, window := m.shown()
	m.window.first = window.scrolled(picture, by).first
}

// page is how many rows a page has.
func (m *topModel) page() int {
	picture, window := m.shown()
	if m.flows.shown {
		return m.flows.rows(window)
	}
	return window.rows(picture)
}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return cmdline.Next(m.interval) }

// Update implements tea.Model.
func (m *topModel) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case tea.KeyMsg:
		switch message.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
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
			m.flows, m.window.first = topFlows{shown: !m.flows.shown}, 0
		case "left", "h":
			m.flows.choose(-1)
		case "right", "l":
			m.flows.choose(1)
		}
	case tea.WindowSizeMsg:
		m.window.width, m.window.height = message.Width, message.Height
	case cmdline.Due:
		shown := m.flows.shown
		return m, cmdline.Ask(func(ctx context.Context) (topSample, error) {
			sample, err := sampleTop(ctx, m.client)
			if err == nil && shown {
				sample.Flows, err = m.client.Flows(ctx, "", topFlowsOfEach)
			}
			return sample, err
		})
	case cmdline.Answer[topSample]:
		// An agent that restarts is not the end of the picture.
		if m.err = message.Err; m.err == nil {
			m.sample = message.Sample
			m.flows.take(m.sample, time.Now())
		}
		return m, cmdline.Next(m.interval)
	}
	return m, nil
}

// View implements tea.Model.
func (m *topModel) View() string {
	picture, window := m.shown()
	text, keys := renderTop(picture, window), "q to quit, s to sort by "+string(m.otherOrder())+", f for flows, arrows to scroll"
	if m.flows.shown {
		text, keys = m.flows.render(window), "q to quit, f for containers, left and right to choose one, arrows to scroll"
	}
	if m.err != nil {
		text += "\n" + cmdline.Cut(cmdline.Printable(m.err.Error()), m.window.width) + "\n"
	}
	return text + "\n" + cmdline.Cut(keys, m.window.width) + "\n"
}
