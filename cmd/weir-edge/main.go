// Command weir-edge runs services on this host or on many, where there is room for
// their users.
package main

import (
	"os"

	"github.com/weir-project/weir/internal/edge/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:], os.Stdout, os.Stderr)) }
