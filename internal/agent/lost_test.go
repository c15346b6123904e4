package agent

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/identity"
	"github.com/weir-project/weir/internal/kernel"
)

// A container that cannot be looked at for now keeps what it has, and is looked
// at again; one whose network is gone does not.
func TestLostDevices(t *testing.T) {
	for _, tc := range []struct {
		err   error
		keeps bool
	}{
		{fmt.Errorf("open: %w", unix.EMFILE), true},
		{fmt.Errorf("list: %w", unix.ENOMEM), true},
		{fmt.Errorf("list: %w", unix.ENOBUFS), true},
		{kernel.ErrNoNetNS, false},
		{kernel.ErrNoLink, false},
		{fmt.Errorf("open: %w", unix.ENOENT), false},
		{fmt.Errorf("list: %w", unix.ENODEV), false},
		{fmt.Errorf("open: %w", unix.ESRCH), false},
	} {
		t.Run(tc.err.Error(), func(t *testing.T) {
			b := newBench(t, 100e6)
			c := b.start("c").container
			b.takeAttachments(c, []identity.Attachment{{Mode: v1.ModeBridge, Interface: "eth0", Tap: nowhere(0)}})
			number := c.number
			b.lostDevices(c, tc.err)
			if keeps := c.number == number && len(c.attachments) == 1 && c.mode == v1.ModeBridge; keeps != tc.keeps {
				t.Errorf("number %d, %s, %d attachments", c.number, c.mode, len(c.attachments))
			}
			state, reason := c.state()
			if !c.unattached || state != v1.StateDegraded || !strings.Contains(reason, "its network cannot be looked at: ") {
				t.Errorf("to be looked at again %t, %s, %q", c.unattached, state, reason)
			}
		})
	}
}

// A new one of which nothing is known yet has none of that.
func TestLostDevicesAtOnce(t *testing.T) {
	b := newBench(t, 100e6)
	c := &container{}
	b.addShares(c)
	b.lostDevices(c, unix.EMFILE)
	if c.mode != v1.ModeNone || c.number != 0 || !c.unattached {
		t.Errorf("%q, number %d, to be looked at again %t", c.mode, c.number, c.unattached)
	}
}
