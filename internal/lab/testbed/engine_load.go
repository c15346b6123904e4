package testbed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Runnable is how many threads of the engine's containers run or wait: for a processor,
// also where it is the limit (see Limit) that they wait for, or for a disk. That is what
// the kernel's load averages are the smoothed mean of, for all of a machine
// (kernel/sched/loadavg.c); control groups of version 1 have none of their own.
func (e *Engine) Runnable() (count int, err error) {
	dir, err := e.controller("cpu")
	if err != nil {
		return 0, err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist): // a container has ended
			return nil
		case err != nil || entry.IsDir() || entry.Name() != "tasks":
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, thread := range strings.Fields(string(text)) {
			if runnable(thread) {
				count++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("count what runs in the engine's containers: %w", err)
	}
	return count, nil
}

// runnable is false for a thread that has ended.
func runnable(thread string) bool {
	number, err := strconv.Atoi(thread)
	if err != nil {
		return false
	}
	one, err := procfs.NewProc(number)
	if err != nil {
		return false
	}
	stat, err := one.Stat()
	return err == nil && (stat.State == "R" || stat.State == "D")
}
