package cli

import (
	"net/netip"
	"strings"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/edge/run"
	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/front/config"
)

// sdnOptions say how weir-edge reaches the controllers of switches (url has all, with commas), and where users
// are.
type sdnOptions struct {
	daemonOptions
	users string
}

// check returns an error for wrong options.
func (o *sdnOptions) check() error {
	if o.url == "" {
		if loose := *o; loose != (sdnOptions{}) {
			return cmdline.Usagef("--sdn is missing, the address of the controller that the other --sdn options are for")
		}
		return nil
	}
	if _, err := config.ParseSDNURL(o.url); err != nil {
		return cmdline.Usagef("--sdn: %q %w", o.url, err)
	}
	if _, err := config.ParseUsers(o.users); err != nil {
		return cmdline.Usagef("--sdn-users: %q %w", o.users, err)
	}
	return nil
}

// links returns the links whose controllers are at the URLs; nil without one.
func (o *sdnOptions) links() (*run.Links, error) {
	if o.url == "" {
		return nil, nil
	}
	options, err := o.options("the controller")
	if err != nil {
		return nil, err
	}
	var controllers []run.LinkController
	for url := range strings.SplitSeq(o.url, ",") {
		controller, err := client.OpenSDN(strings.TrimPrefix(url, "unix://"), options)
		if err != nil {
			return nil, err
		}
		controllers = append(controllers, controller)
	}
	users, err := netip.ParseAddr(o.users)
	return run.NewLinks(controllers, users.Unmap()), err
}
