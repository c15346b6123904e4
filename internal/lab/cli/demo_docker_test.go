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

func TestDemoEdgeInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		300 * time.Millisecond, 3 * time.Second, 8 * time.Second, 25 * time.Second,
	}, "edge")
}
