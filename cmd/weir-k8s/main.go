// Command weir-k8s reports the pods of a Kubernetes node to the agent.
package main

import (
	"os"

	"github.com/weir-project/weir/internal/k8s"
)

func main() { os.Exit(k8s.Run(os.Args, os.Stdout, os.Stderr)) }
