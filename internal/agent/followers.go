package agent

import (
	"slices"

	"github.com/weir-project/weir/internal/identity"
)

// checkFollowers looks for programs and filters of others that see packets after an
// uplink's classifier. What the class is in, the packet's priority, may be changed
// there, and nothing of that can be seen later.
func (a *Agent) checkFollowers() {
	for _, u := range a.uplinks {
		if !u.installed() {
			u.followers = nil
			continue
		}
		followers, err := identity.Followers(u.device.Ifindex())
		if err != nil {
			a.log.Warn("look for programs of others at the uplink", "uplink", u.name, "error", err)
			continue
		}
		if len(followers) > 0 && !slices.Equal(followers, u.followers) {
			a.log.Warn("programs of others come after the classifier and may change whose class packets are in",
				"uplink", u.name, "programs", followers)
		}
		u.followers = followers
	}
}
