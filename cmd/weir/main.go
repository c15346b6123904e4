// Command weir shares a host's network uplink between its containers.
package main

import (
	"os"

	"github.com/weir-project/weir/internal/agent/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr)) }
