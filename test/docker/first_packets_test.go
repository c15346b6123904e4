//go:build docker

package docker

import (
	"slices"
	"testing"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/lab/testbed"
)

// testFirstPackets: a container that sends from its first instant is under
// control by then. Its packets are counted as its own, not as the host's.
func (s *site) testFirstPackets(t *testing.T) {
	const (
		n            = 7
		payloadBytes = 1000
		frameBytes   = 14 + 20 + 8 + payloadBytes
	)
	var early []int
	for range n {
		before := s.agent.Container("host").SentBytes
		c := s.run(t, testbed.RunOptions{
			Name: "eager",
			// One packet each millisecond; the first one at once.
			Args: []string{"/bin/busybox", "ping", "-q", "-i", "0.001", "-s", "1000", s.Host.PeerAddr.String()},
		})
		s.await(t, "eager", "sends", func(c v1.Container) bool { return controlled(c) && c.SentBytes > 50*frameBytes })
		// The counters of all classes are read at the same time.
		early = append(early, int(s.agent.Container("host").SentBytes-before)/frameBytes)
		check(t, s.engine.Remove(t.Context(), c.ID))
		s.agent.AwaitGone("eager", noticed)
	}
	t.Logf("packets of the first milliseconds that were counted as the host's: %v", early)
	slices.Sort(early)
	if early[n/2] > 0 {
		t.Errorf("of half of the containers at least %d packets were counted as the host's", early[n/2])
	}
}
