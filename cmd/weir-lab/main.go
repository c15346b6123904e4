// Command weir-lab shows, measures and models how containers share a link.
package main

import (
	"os"

	"github.com/weir-project/weir/internal/lab/cli"
)

func main() { os.Exit(cli.Run(os.Args, os.Stdout, os.Stderr)) }
