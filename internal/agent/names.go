package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-project/weir/internal/policy"
)

// What users call a container: its name, its ID or the start of it, the service
// that it is of (Compose, Swarm), or its pod.

// minIDLength is the least that the start of an ID must have.
const minIDLength = 4

// match finds those that may be meant by name: the one that has it as its ID;
// otherwise those that have it as their name; otherwise those of the service or
// pod of that name; otherwise those whose IDs begin with it. Of several that share
// one network, as those of a pod do, the one is meant that is counted there: owner
// tells it, or nil where that is the container itself.
func match(name string, list []*container, owner func(*container) *container) []*container {
	for _, is := range []func(c *container) bool{
		func(c *container) bool { return c.ID == name },
		func(c *container) bool { return c.Name == name },
		func(c *container) bool { return name != "" && slices.Contains(groups(c), name) },
		func(c *container) bool { return len(name) >= minIDLength && strings.HasPrefix(c.ID, name) },
	} {
		var found []*container
		for _, c := range list {
			if is(c) {
				found = append(found, c)
			}
		}
		if len(found) == 1 {
			return found
		}
		var counted []*container
		for _, c := range found {
			if o := owner(c); o != nil {
				c = o
			}
			if !slices.Contains(counted, c) {
				counted = append(counted, c)
			}
		}
		if len(counted) > 0 {
			return counted
		}
	}
	return nil
}

// groups are the names of what a container is one of.
func groups(c *container) []string {
	list := []string{c.Pod, c.Labels[policy.LabelComposeService]}
	if service, stack := c.Labels[policy.LabelSwarmService], c.Labels[policy.LabelSwarmStack]; stack != "" {
		list = append(list, service, strings.TrimPrefix(service, stack+"_"))
	} else {
		list = append(list, service)
	}
	return slices.DeleteFunc(list, func(name string) bool { return name == "" })
}

// find looks a container up by what users call it. Errors: ErrUnknown,
// ErrAmbiguous.
func (a *Agent) find(name string) (*container, error) {
	if name == a.host.Name {
		return a.host, nil
	}
	matches := match(name, a.registry.all(), a.owner)
	switch len(matches) {
	case 0:
		return nil, fmt.Errorf("%w: %q; `weir ps` lists those that run", ErrUnknown, name)
	case 1:
		return matches[0], nil
	}
	var candidates []string
	for _, c := range matches {
		candidates = append(candidates, fmt.Sprintf("%s (%s, %s)", c.Name, short(c.ID), c.Runtime))
	}
	return nil, fmt.Errorf("%w %q: use the name or the ID of the one you mean: %s",
		ErrAmbiguous, name, strings.Join(candidates, ", "))
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
