// Command man writes a manual page for each command of the programs into a folder, dated by
// SOURCE_DATE_EPOCH if that is set.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/weir-project/weir/internal/agent/cli"
	edgecli "github.com/weir-project/weir/internal/edge/cli"
	"github.com/weir-project/weir/internal/k8s"
	labcli "github.com/weir-project/weir/internal/lab/cli"
	sdncli "github.com/weir-project/weir/internal/sdn/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: man FOLDER")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	for _, root := range []*cobra.Command{cli.NewRoot(), edgecli.NewRoot(), sdncli.NewRoot("weir-sdn"), k8s.NewRoot(), labcli.NewRoot("weir-lab")} {
		root.DisableAutoGenTag = true
		header := &doc.GenManHeader{Section: "1", Source: "Weir", Manual: "Weir"}
		if err := doc.GenManTree(root, header, folder); err != nil {
			return fmt.Errorf("write manual pages: %w", err)
		}
	}
	return nil
}
