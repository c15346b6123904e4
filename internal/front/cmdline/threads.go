package cmdline

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// EachThread calls do for each thread of the process; a later thread inherits its attributes
// from the thread that made it. A thread that is made meanwhile may come from one that was not
// treated yet: so threads are listed again until there is no new one.
func EachThread(do func(id int) error) error {
	var errs []error
	known := map[string]bool{}
	for before := -1; len(known) > before; {
		before = len(known)
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			if known[thread.Name()] {
				continue
			}
			known[thread.Name()] = true
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			if err := do(id); !errors.Is(err, unix.ESRCH) { // it has ended
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
