package bench

import (
	"context"
	"os/exec"
)

// allSDNSwitches are as many as the target speaks of.
const allSDNSwitches = 100

// runAllSDN is the speed of the controller, beside os-ken where there is one.
func runAllSDN(ctx context.Context, all AllOptions) (finding, error) {
	python, without := osKenPython(ctx)
	found, err := RunSDN(ctx, SDNOptions{
		Switches: allSDNSwitches, Duration: all.Duration, Python: python,
		WeirBinary: all.WeirBinary, Version: all.Version, Command: all.Command, Progress: all.Progress,
	})
	found.Note = joined(found.Note, without)
	return finding{found.Report, found, found.Failed()}, err
}

// osKenPython is an interpreter that has os-ken, or why there is none.
func osKenPython(ctx context.Context) (python, without string) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", "os-ken was left out: python3 is not installed."
	}
	if err := exec.CommandContext(ctx, python, "-c", "import os_ken").Run(); err != nil {
		return "", "os-ken was left out: python3 has no module os_ken (pip install os-ken); weir bench sdn --os-ken takes another interpreter."
	}
	return python, ""
}
