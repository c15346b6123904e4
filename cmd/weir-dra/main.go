// Command weir-dra lets Kubernetes' scheduler count the bandwidth of a node.
package main

import (
	"os"

	"github.com/weir-project/weir/cmd/weir-dra/internal/driver"
)

func main() { os.Exit(driver.Run(os.Args, os.Stdout, os.Stderr)) }
