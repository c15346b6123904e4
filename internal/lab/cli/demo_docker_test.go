//go:build docker

package cli

import (
	"testing"
	"time"
)

func TestDemoWithDocker(t *testing.T) {
	t.Parallel()
	demoShows(t)
}

func TestDemoWithDockerInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		300 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	})
}
