// Package harness runs the real weir program on a test bed and compares what
// arrives at the neighbour with the ideal allocation. It is what the suites in
// test/netns and test/docker have in common.
//
// A Bed is a host with its neighbour (internal/lab/testbed), a meter at the
// neighbour that counts bytes on the wire by container (internal/lab/meter), and
// receivers. Agents are processes in the host's network namespace, each with a
// socket, state and config file of the bed. Everything that a test makes here is
// removed when the test ends, however it ends.
//
// Limits: shares are judged on the processor time that the machine has left.
// Measurements say how short it was, so that a failure can be told from a
// starved one; they are never repeated and tolerances do not depend on it.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-project/weir/internal/lab/testbed"
)

// programVariable names the weir program under test; `make test` sets it.
const programVariable = "WEIR_BIN"

const buildTimeout = 5 * time.Minute

// Main runs the tests of a package that needs root, with weir built from this tree.
func Main(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests need root")
		return 1
	}
	remove, err := Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	return m.Run()
}

// Build builds weir from this tree, for all tests of a suite, unless the script that
// runs the suite has done so. The caller calls remove at the end.
func Build() (remove func(), err error) {
	if os.Getenv(programVariable) != "" {
		return func() {}, nil
	}
	dir, err := testbed.MakeTempDir()
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path, err := build(dir)
	if err == nil {
		err = os.Setenv(programVariable, path)
	}
	if err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}

func build(dir string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	const commands = "github.com/weir-project/weir/cmd/"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", dir+"/", commands+"weir", commands+"weir-lab", commands+"weir-sdn", commands+"weir-k8s")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build weir: %w: %s", err, out)
	}
	return filepath.Join(dir, "weir"), nil
}

// Program is the weir program under test.
func Program(tb testing.TB) string {
	tb.Helper()
	if path := os.Getenv(programVariable); path != "" {
		return path
	}
	path, err := build(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// LabProgram is the weir-lab that belongs to the weir program under test.
func LabProgram(tb testing.TB) string { return testbed.LabProgram(Program(tb)) }
