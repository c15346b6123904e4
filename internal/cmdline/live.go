package cmdline

import (
	"context"
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/cmdline/quiet"
)

// Bubble Tea has been initialized, and has asked the terminal nothing.
var _ = quiet.Restore()

// A live picture asks a daemon, shows the answer, waits, and asks again: Next, Due, Ask,
// Answer, and so on.

// Due is the message that it is time to ask.
type Due struct{}

// Next is Due after an interval.
func Next(interval time.Duration) tea.Cmd {
	return tea.Tick(interval, func(time.Time) tea.Msg { return Due{} })
}

// Answer is the message of what was answered, or why nothing was.
type Answer[Sample any] struct {
	Sample Sample
	Err    error
}

// askTimeout bounds one question.
const askTimeout = 5 * time.Second

// Ask is the answer to a question.
func Ask[Sample any](question func(context.Context) (Sample, error)) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
		defer cancel()
		sample, err := question(ctx)
		return Answer[Sample]{sample, err}
	}
}

// Show shows a picture on the terminal that a command writes to, until it ends itself or
// the command is ended.
func Show(cmd *cobra.Command, model tea.Model) error {
	program := tea.NewProgram(model, tea.WithContext(cmd.Context()), tea.WithAltScreen(), tea.WithOutput(cmd.OutOrStdout()))
	if _, err := program.Run(); err != nil && cmd.Context().Err() == nil {
		return fmt.Errorf("show: %w", err)
	}
	return nil
}
