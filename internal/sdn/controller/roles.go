package controller

import (
	"github.com/weir-project/weir/internal/sdn/openflow"
)

// roleState is this controller's part among several.
type roleState struct {
	role       openflow.Role // OFPCR_ROLE_EQUAL: there is no other
	generation uint64
}

func newRoleState() roleState { return roleState{role: openflow.OFPCR_ROLE_EQUAL} }

// mayWrite tells whether switches take commands from this controller.
func (r *roleState) mayWrite() bool { return r.role != openflow.OFPCR_ROLE_SLAVE }

// request asks a switch for the role; nil where all controllers are equal.
func (r *roleState) request() openflow.Message {
	if r.role == openflow.OFPCR_ROLE_EQUAL {
		return nil
	}
	return &openflow.RoleRequest{RoleState: openflow.RoleState{Role: r.role, GenerationID: r.generation}}
}

func (s *conn) takeRole(*openflow.RoleReply) {}

func (c *Controller) roleError(*conn, *openflow.ErrorMessage) bool { return false }

// Role is master, slave or equal.
func (c *Controller) Role() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.role.role {
	case openflow.OFPCR_ROLE_MASTER:
		return "master"
	case openflow.OFPCR_ROLE_SLAVE:
		return "slave"
	}
	return "equal"
}
