package agent

import (
	"cmp"
	"slices"
	"time"

	"github.com/weir-project/weir/internal/identity"
)

// tapsInterval is how often it is verified that a container's packets still pass
// its tap. A container that is ok was looked at in the last ten seconds.
const tapsInterval = 8 * time.Second

// tapper makes what passes a tap carry a number; *identity.Taps is it.
type tapper interface {
	Attach(tap identity.Tap, number uint16) error
}

// verifyTaps looks whether the taps of the next containers in turn are still there,
// and puts those back that somebody took away: of so many of them as it takes to
// have looked at all once in tapsInterval. A few at a time, as the control loop
// waits meanwhile.
func (a *Agent) verifyTaps(now time.Time) {
	controlled := a.uplinks[0].controlled
	if a.verifiedAt.IsZero() || len(controlled) == 0 {
		a.verifiedAt = now
		return
	}
	pause := tapsInterval / time.Duration(len(controlled))
	due := min(int(now.Sub(a.verifiedAt)/pause), len(controlled))
	if due <= 0 {
		return
	}
	a.verifiedAt = a.verifiedAt.Add(time.Duration(due) * pause)
	if now.Sub(a.verifiedAt) > pause { // it stood still
		a.verifiedAt = now
	}
	first, _ := slices.BinarySearchFunc(controlled, a.verified+1, func(s *share, number uint16) int {
		return cmp.Compare(s.number, number)
	})
	for i := range due {
		c := controlled[(first+i)%len(controlled)].container
		a.verified = c.number
		for j := range c.attachments {
			if c.attachments[j].assigned {
				a.assignDevice(c, &c.attachments[j])
			}
		}
	}
}
