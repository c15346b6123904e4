package measure

import (
	"runtime"
	"runtime/debug"
)

// AlwaysScheduled raises GOMAXPROCS and turns garbage collection off until the returned function is
// called, so that a due sender does not wait for a receiver or the collector to give up a processor.
func AlwaysScheduled() (restore func()) {
	const processors = 16 // more than there are goroutines
	before, collect := runtime.GOMAXPROCS(processors), debug.SetGCPercent(-1)
	return func() {
		runtime.GOMAXPROCS(before)
		debug.SetGCPercent(collect)
	}
}
