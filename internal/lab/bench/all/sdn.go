package all

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/weir-project/weir/internal/lab/bench/sdn"
	"github.com/weir-project/weir/internal/lab/report"
)

// sdnSwitches is the number of switches in Weir's target.
const sdnSwitches = 100

// runSDN measures the controller, and os-ken if it is installed.
func runSDN(ctx context.Context, all Options) (report.Result, error) {
	python, without := osKenPython(ctx)
	found, err := sdn.Run(ctx, sdn.Options{
		Switches: sdnSwitches, Python: python, RunOptions: all.RunOptions,
	})
	found.AddNote(without)
	return found, err
}

// osKenPython returns a Python interpreter with os-ken, or why there is none.
func osKenPython(ctx context.Context) (python, without string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", "os-ken was left out: python3 is not installed."
	}
	if err := sdn.CheckOSKen(ctx, python); err != nil {
		return "", fmt.Sprintf("os-ken was left out: %v; weir bench sdn --os-ken takes another interpreter.", err)
	}
	return python, ""
}
