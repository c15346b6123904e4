package testbed

import "path/filepath"

// LabProgram returns the path of the weir-lab that was built with a weir program: it lies beside
// that. It generates the traffic of test beds.
func LabProgram(weir string) string { return filepath.Join(filepath.Dir(weir), "weir-lab") }
