//go:build netns

package cli

import (
	"testing"
	"time"
)

//weir:beside
func TestDemoWithNamespaces(t *testing.T) { demoShows(t, "--no-docker") }

//weir:beside
func TestDemoWithNamespacesInterrupted(t *testing.T) {
	demoInterrupted(t, []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second,
	}, "--no-docker")
}
