package testbed

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// InNetNS calls fn with the calling thread in the network namespace at path.
// Sockets fn makes belong to that namespace for good, wherever they are used
// later; goroutines fn starts do not run in it.
func InNetNS(path string, fn func() error) (err error) {
	inside, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer inside.Close()

	runtime.LockOSThread()
	outside, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the thread's network namespace: %w", err)
	}
	defer outside.Close()
	if err := unix.Setns(int(inside.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	defer func() {
		if back := unix.Setns(int(outside.Fd()), unix.CLONE_NEWNET); back != nil {
			// The thread stays locked, so that Go ends it with the goroutine
			// and never runs anything else in the wrong namespace.
			err = fmt.Errorf("return from network namespace %s: %w", path, back)
			return
		}
		runtime.UnlockOSThread()
	}()
	return fn()
}
