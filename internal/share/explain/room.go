package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/share/policy"
)

// A shell takes plain names as they are: those of nodes come from other machines. An image without a name
// has its ID, which no other node knows.
var (
	plainName  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,252}$`)
	plainImage = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9_./:@-]{0,400}$`)
	imageID    = regexp.MustCompile(`^(sha256:)?[0-9a-f]{12,64}$`)
)

// Room returns where another node of weir-edge has room for the minimum that is refused to a container here,
// and what moves it there; "" if none is refused, or another program than docker run places the container.
func Room(c *v1.Container, image string, room v1.Room) string {
	refused := slices.ContainsFunc(c.Shares, func(s v1.Share) bool { return s.Controlled && s.AdmittedBPS < c.Policy.MinBPS })
	if !refused || !plainName.MatchString(c.Name) || c.Runtime != "docker" || len(c.Groups) > 0 || strings.HasPrefix(c.Name, "edgeproxy-") {
		return ""
	}
	if room.FreeBPS < c.Policy.MinBPS || !plainName.MatchString(room.Node) {
		return "no other node of weir-edge has room for it"
	}
	if !plainImage.MatchString(image) || imageID.MatchString(image) {
		image = "IMAGE"
	}
	return fmt.Sprintf("node %[1]s has room for it, %[2]s: on a manager docker service create --name %[3]s --label weir-edge.manage=true --container-label %[4]smin=%[5]s %[6]s, with the options that it was started with (a volume of this host stays here, and keeps it from moving), and then docker rm -f %[3]s here; weir-edge moves it to a node with room",
		room.Node, policy.FormatRateWithin(room.FreeBPS), c.Name, policy.Prefix, policy.FormatRate(c.Policy.MinBPS), image)
}

// Note adds notes to the value of that name, where the policy has it.
func Note(e *v1.Explanation, name string, notes ...string) {
	for i := range e.Policy {
		if v := &e.Policy[i]; v.Name == name {
			v.Notes = append(v.Notes, notes...)
		}
	}
}
