package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/agent"
	"github.com/weir-project/weir/internal/cmdline"
	"github.com/weir-project/weir/internal/config"
	"github.com/weir-project/weir/internal/flows"
)

func newReloadCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let the agent read its config file again",
		Long: `Let the agent read its config file again (SIGHUP does the same): the uplinks, their
rates and reserve, the host's policy, defaults, limits, policies,
trust_image_labels and the classifier change at once, and no packet and no flow is
lost. An uplink that is new is shared out, and one that is not named any more is given
back as it was. With a mistake in the file, a classifier that is missing, broken or
too deep, an uplink that cannot be had, or a change of anything else, which takes a
restart of the agent, everything stays as it was.`,
		Args: cmdline.ExactArgs(),
	}
	connect := addConnectionFlags(cmd, g)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		agent, err := connect.open()
		if err != nil {
			return err
		}
		return agent.Reload(cmd.Context())
	}
	return cmd
}

// reloadTimeout bounds how long a signal to read the file again waits for the
// agent.
const reloadTimeout = 10 * time.Second

// reloadOn lets an agent read its settings again for every signal, until ctx ends.
func reloadOn(ctx context.Context, signals <-chan os.Signal, reload func(context.Context) error, log *slog.Logger) {
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		waiting, done := context.WithTimeout(ctx, reloadTimeout)
		// What the agent has against it, it logs itself.
		if err := reload(waiting); err != nil && !errors.Is(err, agent.ErrRefused) {
			log.Error("read the configuration again", "error", err)
		}
		done()
	}
}

// agentSettings are what of the settings the agent can take while it runs.
// Errors: a classifier that the kernel cannot have.
func (f *agentFlags) agentSettings(settings config.Config) (agent.Settings, error) {
	wanted := settings.Classifier
	classifier, err := flows.Load(wanted.Path, wanted.Levels, wanted.MinConfidence)
	if err != nil {
		return agent.Settings{}, err
	}
	var uplinks []agent.UplinkConfig
	for _, u := range settings.Uplinks {
		uplinks = append(uplinks, agent.UplinkConfig{
			Name: u.Interface, RateBPS: u.RateBPS, Replace: u.Replace, IgnoreLinkSpeed: f.anySpeed,
		})
	}
	return agent.Settings{
		Uplinks: uplinks, ReserveBasisPoints: settings.ReserveBasisPoints,
		Host: settings.Host, Rules: settings.Rules, Classifier: classifier,
	}, nil
}

// onlyByRestart says which of the changes between two settings take a restart.
func onlyByRestart(before, after config.Config) error {
	var changed []string
	for _, setting := range []struct {
		key           string
		before, after any
	}{
		{"socket", before.Socket, after.Socket},
		{"socket_group", before.SocketGroup, after.SocketGroup},
		{"socket_group_role", before.SocketGroupReads, after.SocketGroupReads},
		{"listen", before.Listen, after.Listen},
		{"tokens", before.TokensPath, after.TokensPath},
		{"dashboard", before.Dashboard, after.Dashboard},
		{"state_dir", before.StateDir, after.StateDir},
		{"docker", before.Docker, after.Docker},
		{"podman", before.Podman, after.Podman},
		{"containers", before.Containers, after.Containers},
	} {
		if !reflect.DeepEqual(setting.before, setting.after) {
			changed = append(changed, setting.key)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return fmt.Errorf("it changes %s: restart the agent for that, which loses nothing", strings.Join(changed, ", "))
}
