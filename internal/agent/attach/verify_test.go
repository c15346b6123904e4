package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// Within ten seconds the taps of all containers are looked at, of any number of them, a few
// at a time, and a container whose tap cannot be put back is not ok.
func TestVerify(t *testing.T) {
	for _, containers := range []int{1, 7, 40, 1000} {
		t.Run(fmt.Sprint(containers), func(t *testing.T) {
			b := newBed()
			for range containers {
				b.start("c", v1.ModeBridge, 1)
			}
			b.apply()
			clear(b.taps.verified)
			verify := func(now time.Time) (times int) {
				for _, n := range b.taps.verified {
					times -= n
				}
				b.Verify(containers, func(i int) *Container { return b.all[i] }, now)
				for _, n := range b.taps.verified {
					times += n
				}
				return times
			}
			now, most := epoch, verify(epoch)
			for now.Before(epoch.Add(10 * time.Second)) {
				now = now.Add(40 * time.Millisecond)
				most = max(most, verify(now))
			}
			for _, c := range b.all {
				if times := b.taps.verified[c.Number]; times < 1 || times > 2 {
					t.Errorf("the tap of number %d was looked at %d times in 10 s", c.Number, times)
				}
			}
			if limit := 1 + containers/100; most > limit {
				t.Errorf("%d taps in one turn, want at most %d", most, limit)
			}
			b.taps.err = errors.New("no such device")
			verify(now.Add(verifyInterval))
			for _, c := range b.all {
				if !strings.Contains(c.Obstacle, "its packets cannot be told apart: no such device") || !c.Unattached {
					t.Fatalf("number %d: %q", c.Number, c.Obstacle)
				}
			}
		})
	}
}
