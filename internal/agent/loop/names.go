package agent

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/policy"
)

// What users call a container: its name, its ID or the start of it, the service
// that it is of (Compose, Swarm), or its pod.

// minIDLength is the least that the start of an ID must have.
const minIDLength = 4

// Find returns the index of the container that users call name, as found by match.
// Errors: ErrUnknown, ErrAmbiguous.
func Find(list []v1.Container, name string) (int, error) {
	matches := match(name, list)
	switch len(matches) {
	case 0:
		return 0, fmt.Errorf("%w: %q; `weir ps` lists those that run", ErrUnknown, name)
	case 1:
		return matches[0], nil
	}
	var candidates []string
	for _, i := range matches {
		candidates = append(candidates, fmt.Sprintf("%s (%s, %s)", list[i].Name, short(list[i].ID), list[i].Runtime))
	}
	return 0, fmt.Errorf("%w %q: use the name or the ID of the one you mean: %s",
		ErrAmbiguous, name, strings.Join(candidates, ", "))
}

// match finds those that may be meant by name, by their index: the one that has it
// as its ID; otherwise those that have it as their name; otherwise those of the
// service or pod of that name; otherwise those whose IDs begin with it. Of several
// that share one network, as those of a pod do, the one is meant that is counted
// there.
func match(name string, list []v1.Container) []int {
	for _, is := range []func(c *v1.Container) bool{
		func(c *v1.Container) bool { return c.ID == name },
		func(c *v1.Container) bool { return c.Name == name },
		func(c *v1.Container) bool { return name != "" && slices.Contains(c.Groups, name) },
		func(c *v1.Container) bool { return len(name) >= minIDLength && strings.HasPrefix(c.ID, name) },
	} {
		var found []int
		for i := range list {
			if is(&list[i]) {
				found = append(found, i)
			}
		}
		if len(found) == 1 {
			return found
		}
		var counted []int
		for _, i := range found {
			owner := func(c v1.Container) bool { return c.ID == list[i].CountedWith }
			if at := slices.IndexFunc(list, owner); at >= 0 {
				i = at
			}
			if !slices.Contains(counted, i) {
				counted = append(counted, i)
			}
		}
		if len(counted) > 0 {
			return counted
		}
	}
	return nil
}

// groups are the names of what a container is one of. What only its image says
// does not count: it could make another's name ambiguous.
func groups(c *container) []string {
	services := policy.Services(c.Labels, c.ImageLabels)
	if c.Pod == "" {
		return services
	}
	return append([]string{c.Pod}, services...)
}

// find looks a container up by what users call it, as Find does.
func (a *Agent) find(name string) (*container, error) {
	all := append(a.registry.all(), a.host)
	list := make([]v1.Container, len(all))
	for i, c := range all {
		list[i] = v1.Container{ID: c.ID, Name: c.Name, Runtime: c.Runtime, Groups: groups(c), CountedWith: a.countedWith(c)}
	}
	i, err := Find(list, name)
	if err != nil {
		return nil, err
	}
	return all[i], nil
}

// countedWith is the ID of the owner of a container, if it has one.
func (a *Agent) countedWith(c *container) string {
	if owner := a.owner(c); owner != nil {
		return owner.ID
	}
	return ""
}

// owner is the container in whose network another one is, and with which it is
// counted; nil for one that is counted itself.
func (a *Agent) owner(c *container) *container {
	if c == a.host || c.number != 0 || c.netns.Inode == 0 {
		return nil
	}
	return a.registry.sharesNetNS(c)
}

// sharesNetwork says what it means for a container to be in the network of owner.
func (c *container) sharesNetwork(owner *container) string {
	text := fmt.Sprintf("it shares the network of %s and is counted there", owner.Name)
	for label := range c.Labels {
		if strings.HasPrefix(label, policy.Prefix) || label == policy.LabelKubernetesMax {
			return text + fmt.Sprintf("; its own labels have no effect: give them to %[1]s, or use `weir set %[1]s`", owner.Name)
		}
	}
	return text
}
