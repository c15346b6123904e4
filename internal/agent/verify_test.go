package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
)

// Within ten seconds the taps of all containers are looked at, of any number of
// them, a few at a time, and a container whose tap cannot be put back is not ok.
func TestVerifyTaps(t *testing.T) {
	for _, containers := range []int{1, 7, 40, 1000} {
		t.Run(fmt.Sprint(containers), func(t *testing.T) {
			b := newBench(t, 1e9)
			for n := range containers {
				c := b.start(fmt.Sprint(n)).container
				c.attachments = []attachment{{Attachment: identity.Attachment{Mode: v1.ModeBridge, Tap: nowhere(n)}, assigned: true}}
			}
			b.plan()
			taps := &fakeTaps{verified: map[uint16]int{}}
			b.taps = taps
			now, most := epoch, 0
			b.control(now)
			for now.Before(epoch.Add(10 * time.Second)) {
				before := 0
				for _, times := range taps.verified {
					before += times
				}
				now = now.Add(restInterval)
				b.control(now)
				for _, times := range taps.verified {
					before -= times
				}
				most = max(most, -before)
			}
			for _, s := range b.link.controlled {
				if times := taps.verified[s.number]; times < 1 || times > 2 {
					t.Errorf("the tap of number %d was looked at %d times in 10 s", s.number, times)
				}
			}
			if limit := 1 + containers/100; most > limit {
				t.Errorf("%d taps in one turn, want at most %d", most, limit)
			}
			taps.err = errors.New("no such device")
			b.control(now.Add(tapsInterval))
			for _, s := range b.link.controlled {
				state, reason := s.state()
				if state != v1.StateDegraded || !strings.Contains(reason, "its packets cannot be told apart: no such device") || !s.unattached {
					t.Fatalf("number %d: %s, %q", s.number, state, reason)
				}
			}
		})
	}
}
