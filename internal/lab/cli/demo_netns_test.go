//go:build netns

package cli

import (
	"testing"
	"time"
)

func TestDemoWithNamespaces(t *testing.T) {
	t.Parallel()
	demoShows(t, "--no-docker")
}

func TestDemoWithNamespacesInterrupted(t *testing.T) {
	t.Parallel()
	demoInterrupted(t, []time.Duration{
		100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second,
	}, "--no-docker")
}
