// Package connect holds the flags of commands that ask an agent, here or on another host.
package connect

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/api/v1/client"
	"github.com/weir-project/weir/internal/front/cmdline"
)

// Flags are the flags that select an agent.
type Flags struct {
	socket                       *string
	remote                       string
	ca, certificate, key, tokens string
}

// Local returns Flags for the agent of this host at socket, without adding command-line
// flags.
func Local(socket *string) *Flags { return &Flags{socket: socket} }

// Add adds the flags to a command. Without them the command uses the agent of this host at
// socket.
func Add(cmd *cobra.Command, socket *string) *Flags {
	c := Local(socket)
	flags := cmd.Flags()
	flags.StringVar(&c.remote, "remote", "", "ask the agent of another host: https://HOST:PORT, where it listens")
	flags.StringVar(&c.tokens, "token-file", "", "with --remote: file with the token to show")
	flags.StringVar(&c.ca, "ca", "", "with --remote: file with the authorities to trust, PEM (default: the system's)")
	flags.StringVar(&c.certificate, "cert", "", "with --remote: file with the certificate to show, PEM")
	flags.StringVar(&c.key, "key", "", "with --remote: file with its key, PEM")
	return c
}

// Open returns a client of the selected agent.
func (c *Flags) Open() (*client.Client, error) {
	if c.remote == "" {
		if c.ca+c.certificate+c.key+c.tokens != "" {
			return nil, cmdline.Usagef("--token-file, --ca, --cert and --key are for an agent on another host: add --remote https://HOST:PORT")
		}
		return client.Unix(*c.socket), nil
	}
	if (c.certificate == "") != (c.key == "") {
		return nil, cmdline.Usagef("--cert and --key belong together: give both, or none")
	}
	trust, err := client.LoadTLS(c.ca, c.certificate, c.key)
	if err != nil {
		return nil, err
	}
	options := client.Options{TLS: trust}
	if c.tokens != "" {
		data, err := os.ReadFile(c.tokens)
		if err != nil {
			return nil, fmt.Errorf("read the token: %w", err)
		}
		options.Token = string(bytes.TrimSpace(data))
	}
	agent, err := client.New(c.remote, options)
	if err != nil {
		return nil, cmdline.WithCode(cmdline.Usage, fmt.Errorf("ask another host: %w", err))
	}
	return agent, nil
}

// CompleteNames completes the names of running containers in the shell.
func (c *Flags) CompleteNames(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	agent, err := c.Open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	containers, err := agent.Containers(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []cobra.Completion
	for _, container := range containers {
		names = append(names, cobra.CompletionWithDesc(container.Name, fmt.Sprintf("%s, %s", container.Runtime, container.Mode)))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
