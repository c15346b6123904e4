package cli

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/weir-project/weir/test/golden"
)

// compareGolden compares text with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name+".golden"), got)
}

// run runs a command line.
func run(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(append([]string{"weir"}, args...), &out, &err)
	return code, out.String(), err.String()
}
