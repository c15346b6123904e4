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

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/loop"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/flows"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
	"github.com/weir-project/weir/internal/front/connect"
)

func newReloadCommand(socket *string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Let the agent read its config file again",
		Long: `Let the agent read its config file again (SIGHUP does the same): the uplinks, their
rates and reserve, the host's policy, defaults, limits, policies,
trust_image_labels and the classifier change at once, and no packet and no flow is
lost. A new uplink is shared out, and an uplink that the file no longer names is
restored. Everything stays as it was if the file has a mistake, if the classifier is
missing, broken or too deep, if an uplink cannot be shared out, or if another setting
has changed, which takes a restart of the agent. What changed is printed.`,
		Args: cmdline.ExactArgs(),
	}
	flags := connect.Add(cmd, socket)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		agent, err := flags.Open()
		if err != nil {
			return err
		}
		done, err := agent.Reload(cmd.Context())
		for _, change := range done.Changes {
			fmt.Fprintln(cmd.OutOrStdout(), "changed:", cmdline.Printable(change))
		}
		return err
	}
	return cmd
}

// reloadTimeout bounds how long a reload signal waits for the agent.
const reloadTimeout = 10 * time.Second

// reloadOn reloads the agent's settings on every signal until ctx ends.
func reloadOn(ctx context.Context, signals <-chan os.Signal, reload func(context.Context) (v1.Reloaded, error), log *slog.Logger) {
	for {
		select {
		case <-signals:
		case <-ctx.Done():
			return
		}
		waiting, done := context.WithTimeout(ctx, reloadTimeout)
		// The agent logs a refused configuration itself.
		if _, err := reload(waiting); err != nil && !errors.Is(err, loop.ErrRefused) {
			log.Error("cannot read the configuration again", "error", err)
		}
		done()
	}
}

// agentSettings returns the settings that the agent can change while it runs. Errors: a classifier
// that the kernel cannot load.
func (f *agentFlags) agentSettings(settings config.Config) (loop.Settings, error) {
	wanted := settings.Classifier
	classifier, err := flows.Load(wanted.Path, wanted.Levels, wanted.MinConfidence)
	if err != nil {
		return loop.Settings{}, err
	}
	var uplinks []loop.UplinkConfig
	for _, u := range settings.Uplinks {
		var rates map[string]uplink.Rates
		for device, of := range u.Rates {
			if rates == nil {
				rates = map[string]uplink.Rates{}
			}
			rates[device] = uplink.Rates(of)
		}
		uplinks = append(uplinks, loop.UplinkConfig{
			Name: u.Interface, RateBPS: u.RateBPS, Replace: u.Replace, IgnoreLinkSpeed: u.IgnoreLinkSpeed || f.anySpeed, Precision: u.Precision,
			In: uplink.InConfig{Shared: u.In, RateBPS: u.InRateBPS, Force: u.InForce}, Rates: rates,
		})
	}
	return loop.Settings{
		Uplinks: uplinks, ReserveBasisPoints: settings.ReserveBasisPoints,
		Host: settings.Host, HostIn: settings.HostIn, Rules: settings.Rules, IgnoreDefaultRoute: settings.IgnoreDefaultRoute, Classifier: classifier,
	}, nil
}

// onlyByRestart returns an error that names the changed settings which take effect only after a
// restart, or nil.
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
