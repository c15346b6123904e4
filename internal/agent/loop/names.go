package loop

import (
	"fmt"
	"slices"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/policy"
)

// Names of a container: its name, its ID or the start of it, its service (Compose, Swarm), or its
// pod.

// minIDLength is the minimum length of an abbreviated ID.
const minIDLength = 4

// Find returns the index of the container that matches name. Errors: ErrUnknown, ErrAmbiguous.
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

// match returns the indexes of the containers that name may mean, by the first rule with a result:
// the same ID; the same name; a service or pod of that name; an ID that begins with name. Of
// containers that share a network, as in a pod, it returns the one whose policy counts there.
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

// groups returns the names of the service and pod of a container. Image labels do not count, as
// they could make another container's name ambiguous.
func groups(c *container) []string {
	services := policy.Services(c.Seen.Labels, c.subject().OfImage())
	if c.Seen.Pod.Name == "" {
		return services
	}
	return append([]string{c.Seen.Pod.Name}, services...)
}

// find returns the container that matches name, by the rules of Find.
func (cs *containers) find(name string) (*container, error) {
	all, owners := append(cs.all(), cs.host), cs.owners()
	list := make([]v1.Container, len(all))
	for i, c := range all {
		list[i] = v1.Container{ID: c.Seen.ID, Name: c.Seen.Name, Runtime: c.Seen.Runtime, Groups: groups(c), CountedWith: owners.countedWith(c)}
	}
	i, err := Find(list, name)
	if err != nil {
		return nil, err
	}
	return all[i], nil
}

// owners holds the controlled container of each network namespace.
type owners map[kernel.NetNSID]*container

func (r *registry) owners() owners {
	list := owners{}
	for _, c := range r.byNumber {
		if c.Mode != v1.ModeHost {
			list[c.NetNS] = c
		}
	}
	return list
}

// of returns the container whose network this one uses and with which it is counted; nil if it is
// counted itself.
func (o owners) of(c *container) *container {
	if c.Number != 0 || c.NetNS == (kernel.NetNSID{}) {
		return nil
	}
	return o[c.NetNS]
}

// countedWith returns the ID of the container with which this one is counted, or "".
func (o owners) countedWith(c *container) string {
	if owner := o.of(c); owner != nil {
		return owner.Seen.ID
	}
	return ""
}
