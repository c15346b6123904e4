package measure

import (
	"runtime"
	"runtime/debug"
)

// AlwaysScheduled lets every thread of this program go on as soon as the kernel lets it,
// until what it returns is called: with as many of Go's processors as the machine has,
// which may be one, a sender that is due waits until a receiver gives one away, and for
// collections of garbage.
func AlwaysScheduled() (restore func()) {
	const processors = 16 // more than there are goroutines
	before, collect := runtime.GOMAXPROCS(processors), debug.SetGCPercent(-1)
	return func() {
		runtime.GOMAXPROCS(before)
		debug.SetGCPercent(collect)
	}
}
