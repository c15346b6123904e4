package all

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/weir-project/weir/internal/lab/bench/measure"
	"github.com/weir-project/weir/internal/lab/bench/sdn"
)

// sdnSwitches are as many as the target speaks of.
const sdnSwitches = 100

// runSDN is the speed of the controller, beside os-ken where there is one.
func runSDN(ctx context.Context, all Options) (finding, error) {
	python, without := osKenPython(ctx)
	found, err := sdn.Run(ctx, sdn.Options{
		Switches: sdnSwitches, Duration: all.Duration, Python: python,
		WeirBinary: all.WeirBinary, Version: all.Version, Command: all.Command, Progress: all.Progress,
	})
	found.Note = measure.Joined(found.Note, without)
	return finding{found.Report, found, found.Failed()}, err
}

// osKenPython is an interpreter that has os-ken, or why there is none.
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
