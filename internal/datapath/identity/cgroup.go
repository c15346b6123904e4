package identity

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weir-project/weir/internal/datapath/kernel"
)

// Limits of enum weir_level in bpf/intf.h.
const (
	maxCgroupLevels = int(uplinkWeirLevelWEIR_LEVELS)
	cgroupLevelBits = int(uplinkWeirLevelWEIR_LEVEL_BITS)
)

// cgroups are the assigned cgroups of an uplink: a map from cgroup IDs to container numbers, and
// the list of their levels in the hierarchy. The kernel keeps both with the program, so they
// outlive the agent.
type cgroups struct {
	entries *ebpf.Map
	// setLevels writes the list of levels to the kernel.
	setLevels func(packed uint64) error
	// byNumber is a copy of entries, by number.
	byNumber map[uint16]kernel.Cgroup
}

// read loads the kernel's entries, and corrects the list of levels.
func (c *cgroups) read() error {
	c.byNumber = map[uint16]kernel.Cgroup{}
	var (
		id    uint64
		value uplinkWeirCgroup
	)
	entries := c.entries.Iterate()
	for entries.Next(&id, &value) {
		c.byNumber[uint16(value.Number)] = kernel.Cgroup{ID: id, Level: int(value.Level)}
	}
	if err := entries.Err(); err != nil {
		return fmt.Errorf("read the cgroups that are assigned: %w", err)
	}
	return c.writeLevels(c.levels())
}

// levels returns the hierarchy levels that have assigned cgroups.
func (c *cgroups) levels() map[int]bool {
	levels := map[int]bool{}
	for _, cgroup := range c.byNumber {
		levels[cgroup.Level] = true
	}
	return levels
}

// packLevels encodes the levels for the program: one byte per level, the deepest in the lowest
// byte.
func packLevels(levels map[int]bool) uint64 {
	list := make([]int, 0, len(levels))
	for level := range levels {
		list = append(list, level)
	}
	slices.Sort(list)
	var packed uint64
	for _, level := range list {
		packed = packed<<cgroupLevelBits | uint64(level)
	}
	return packed
}

func (c *cgroups) writeLevels(levels map[int]bool) error {
	return c.setLevels(packLevels(levels))
}

func (c *cgroups) assign(path string, number uint16) error {
	cgroup, err := kernel.LookUpCgroup(path)
	if err != nil {
		return err
	}
	had, assigned := c.byNumber[number]
	if assigned && had == cgroup {
		return nil
	}
	levels := c.levels()
	levels[cgroup.Level] = true
	switch {
	case cgroup.Level == 0:
		return fmt.Errorf("%s is the root of all cgroups, not a container's", path)
	case cgroup.Level >= 1<<cgroupLevelBits, len(levels) > maxCgroupLevels:
		return fmt.Errorf("cgroup %s is %d levels below the root: containers' cgroups can be at %d different levels",
			path, cgroup.Level, maxCgroupLevels)
	}
	for other, of := range c.byNumber {
		if of == cgroup {
			delete(c.byNumber, other)
		}
	}
	value := uplinkWeirCgroup{Number: uint32(number), Level: uint32(cgroup.Level)}
	if err := c.entries.Update(cgroup.ID, value, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("assign cgroup %s: %w", path, err)
	}
	c.byNumber[number] = cgroup
	if err := c.writeLevels(levels); err != nil {
		return err
	}
	if assigned {
		return c.remove(had)
	}
	return nil
}

func (c *cgroups) unassign(number uint16) error {
	cgroup, assigned := c.byNumber[number]
	if !assigned {
		return nil
	}
	delete(c.byNumber, number)
	return c.remove(cgroup)
}

func (c *cgroups) remove(cgroup kernel.Cgroup) error {
	if err := c.entries.Delete(cgroup.ID); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("unassign a cgroup: %w", err)
	}
	return c.writeLevels(c.levels())
}

// AssignCgroup assigns the packets from sockets of the cgroup at path, and of cgroups below it, to
// number. path is a directory of a version 2 hierarchy. A previous cgroup of the number is
// unassigned. It does nothing if the assignment is in force already. Errors: kernel.ErrNoCgroup.
func (u *Uplink) AssignCgroup(path string, number uint16) error {
	return u.cgroups.assign(path, number)
}

// UnassignCgroup removes the cgroup of number, if it has one.
func (u *Uplink) UnassignCgroup(number uint16) error { return u.cgroups.unassign(number) }
