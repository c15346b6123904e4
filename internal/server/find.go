package server

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent"
)

// minIDLength is the least that the start of an ID must have.
const minIDLength = 4

// find returns the index of the container that users call name: by its ID, its
// name, the service or pod that it is of, or the start of its ID, in that order.
// Errors: agent.ErrUnknown, agent.ErrAmbiguous.
func find(containers []v1.Container, name string) (int, error) {
	for _, is := range []func(c *v1.Container) bool{
		func(c *v1.Container) bool { return c.ID == name },
		func(c *v1.Container) bool { return c.Name == name },
		func(c *v1.Container) bool { return name != "" && slices.Contains(c.Groups, name) },
		func(c *v1.Container) bool { return len(name) >= minIDLength && strings.HasPrefix(c.ID, name) },
	} {
		var found []int
		var candidates []string
		for i := range containers {
			if c := &containers[i]; is(c) {
				found = append(found, i)
				candidates = append(candidates, fmt.Sprintf("%s (%.12s, %s)", c.Name, c.ID, c.Runtime))
			}
		}
		switch len(found) {
		case 0:
		case 1:
			return found[0], nil
		default:
			return 0, fmt.Errorf("%w %q: use the name or the ID of the one you mean: %s", agent.ErrAmbiguous, name, strings.Join(candidates, ", "))
		}
	}
	return 0, fmt.Errorf("%w: %q; `weir ps` lists those that run", agent.ErrUnknown, name)
}
