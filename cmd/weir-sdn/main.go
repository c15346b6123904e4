// Command weir-sdn controls OpenFlow switches: queues by application.
package main

import (
	"os"

	"github.com/weir-project/weir/internal/sdn/cli"
)

func main() { os.Exit(cli.Run(os.Args, os.Stdout, os.Stderr)) }
