//go:build docker

package cli

import (
	"testing"
	"time"
)

//weir:beside
func TestDemoWithDocker(t *testing.T) { demoShows(t) }

//weir:beside
func TestDemoWithDockerInterrupted(t *testing.T) {
	demoInterrupted(t, []time.Duration{
		300 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	})
}
