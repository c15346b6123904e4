package proxy

import (
	"fmt"
	"slices"
)

// plan returns the commands that change a proxy's servers to those wanted, and the number of users
// on removed servers. A removed server stays until its users have left.
func plan(wanted []Port, seen []ServerStatus) (commands []string, leaving int) {
	for _, port := range wanted {
		commands = append(commands, join(port, seen)...)
	}
	for _, s := range seen {
		if isWanted(wanted, s) {
			continue
		}
		gone, stays := leave(s)
		commands = append(commands, gone...)
		leaving += stays
	}
	return commands, leaving
}

func join(port Port, seen []ServerStatus) (commands []string) {
	for _, s := range port.Servers {
		path := port.backend() + "/" + s.Name
		i := slices.IndexFunc(seen, func(t ServerStatus) bool { return t.Backend == port.backend() && t.Name == s.Name })
		if i < 0 {
			// HAProxy assumes a new server to be up until its first check and would send users to
			// one that does not listen yet. A server has to be enabled before it can be marked
			// down, so it starts with weight 0, which other threads never choose.
			silent := s
			silent.Weight = 0
			commands = append(commands, fmt.Sprintf(
				"add server %[1]s %[2]s; enable health %[1]s; enable server %[1]s; set server %[1]s health down; set server %[1]s weight %[3]d",
				path, silent.arguments(), s.Weight))
			continue
		}
		there := seen[i]
		// A restarted engine assigns new addresses.
		if there.Address.IsValid() && there.Address != s.Address {
			commands = append(commands, fmt.Sprintf("set server %s addr %s port %d", path, s.Address.Addr(), s.Address.Port()))
		}
		if there.Leaving {
			commands = append(commands, "set server "+path+" state ready")
		}
		if there.Unreachable && s.Asked && there.Users > 0 {
			commands = append(commands, "shutdown sessions server "+path)
		}
		if there.Weight != s.Weight {
			commands = append(commands, fmt.Sprintf("set server %s weight %d", path, s.Weight))
		}
		if there.MaxUsers != s.MaxUsers {
			commands = append(commands, fmt.Sprintf("set maxconn server %s %d", path, s.MaxUsers))
		}
	}
	return commands
}

// leave returns the commands for a server that is not wanted. One that is up is drained first, also
// without users: maintenance ends the sessions that have begun since they were counted. Of one that is
// down HAProxy does not tell whether it is drained.
func leave(s ServerStatus) (commands []string, users int) {
	path := s.Backend + "/" + s.Name
	users = s.Users + s.Waiting
	switch {
	case !s.Leaving && (s.Up || users > 0):
		return []string{"set server " + path + " state drain"}, users
	case s.Maintenance && s.Users == 0:
		return []string{"del server " + path}, 0
	case users == 0:
		return []string{"set server " + path + " state maint", "del server " + path}, 0
	}
	return nil, users
}

func isWanted(wanted []Port, s ServerStatus) bool {
	return slices.ContainsFunc(wanted, func(p Port) bool {
		return p.backend() == s.Backend && slices.ContainsFunc(p.Servers, func(t Server) bool { return t.Name == s.Name })
	})
}
