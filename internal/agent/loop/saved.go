package loop

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/agent/attach"
	"github.com/weir-project/weir/internal/agent/discovery"
	"github.com/weir-project/weir/internal/agent/discovery/pods"
	"github.com/weir-project/weir/internal/agent/state"
	"github.com/weir-project/weir/internal/agent/stats"
	"github.com/weir-project/weir/internal/agent/uplink"
	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/share/policy"
)

// The state file: what is saved, and what the next agent recalls of it.

// saveSoon writes the state file, unless it was written several times recently; then a later turn
// of the control loop writes it. This bounds the writes while containers come and go.
func (a *Agent) saveSoon(now time.Time) {
	if !a.unsaved || now.Before(a.saveFrom) {
		return
	}
	if earliest := now.Add(-saveBurst * saveInterval); a.saveFrom.Before(earliest) {
		a.saveFrom = earliest
	}
	a.saveFrom = a.saveFrom.Add(saveInterval)
	if err := a.save(); err != nil {
		a.log.Error("cannot save the agent's state", "error", err)
	}
}

// saveChange saves a user's change, which only the state file holds.
func (a *Agent) saveChange() error {
	if err := a.save(); err != nil {
		return fmt.Errorf("the change is in force, but could not be saved: a restart of the agent loses it; make room or mend the disk, and ask again: %w", err)
	}
	return nil
}

// save writes the data that neither the kernel nor a source has.
func (a *Agent) save() error {
	containers := make([]state.Container, 0, len(a.containers.byKey))
	for _, c := range a.containers.all() {
		s := savedContainer(c.Container.Seen)
		s.Number, s.Set, s.Attached = c.Number, savedSet(c.set), savedDevices(c.Devices)
		s.AdmittedBPS = savedAdmitted(c)
		for _, share := range c.shares {
			if share.totals != (stats.Totals{}) {
				if s.Counted == nil {
					s.Counted = map[string]state.Counted{}
				}
				s.Counted[share.uplink.device.Name()] = savedCounted(share)
			}
		}
		containers = append(containers, s)
	}
	for _, u := range a.uplinks.list {
		if u.installed() {
			counted := savedCounted(u.host)
			saved := a.store.Uplink(u.device.Name(), u.device.Ifindex())
			saved.Host, saved.HostAdmittedBPS = &counted, u.host.admittedBPS
		}
	}
	before := a.store.Containers
	a.store.Containers = containers
	a.unsaved = false
	if err := a.store.Save(); err != nil {
		a.store.Containers = before // as in the file
		return err
	}
	a.attach.LimitSaved(a.containers.attached())
	return nil
}

// savedAdmitted returns the admitted minimums of a container by uplink; nil without any.
func savedAdmitted(c *container) (admitted map[string]uint64) {
	for _, share := range c.shares {
		if share.admittedBPS == 0 {
			continue
		}
		if admitted == nil {
			admitted = map[string]uint64{}
		}
		admitted[share.uplink.device.Name()] = share.admittedBPS
	}
	return admitted
}

// lacksAdmitted reports whether a container has admitted minimums that were not saved.
func (c *container) lacksAdmitted(saved []state.Container) bool {
	admitted := savedAdmitted(c)
	return len(admitted) > 0 && !slices.ContainsFunc(saved, func(s state.Container) bool {
		return s.Runtime == c.Seen.Runtime && s.ID == c.Seen.ID && maps.Equal(s.AdmittedBPS, admitted)
	})
}

// recall restores the containers of an earlier agent, so that their classes stay until their source
// has reported what runs.
func (a *Agent) recall() {
	names := map[*link]string{}
	for _, u := range a.uplinks.list {
		names[u] = a.uplinks.savedName(u)
		for _, saved := range a.store.Uplinks {
			if saved.Name == names[u] && saved.Host != nil {
				u.host.admittedBPS = saved.HostAdmittedBPS
				recallCounted(u.host, *saved.Host)
			}
		}
	}
	for _, s := range a.store.Containers {
		c := &container{}
		c.Learn(recalledContainer(s))
		a.containers.addShares(c)
		c.Devices = recalledDevices(s.Attached)
		c.set = recalledSet(s.Set)
		a.containers.resolve(c)
		a.containers.byKey[c.key()] = c
		if !a.containers.claim(c, s.Number) {
			continue
		}
		for _, share := range c.shares {
			share.admittedBPS = s.AdmittedBPS[names[share.uplink]]
			recallCounted(share, s.Counted[names[share.uplink]])
		}
	}
	for _, c := range a.containers.all() {
		if a.containers.hasSource(c.Seen.Runtime) {
			a.containers.inspect(c)
		}
		if name := c.Seen.Runtime; slices.Contains(pods.Runtimes(), name) {
			a.containers.sources[name] = v1.Source{Name: name, Reason: "weir-k8s has not connected yet"}
		}
	}
}

// savedName returns the name under which an earlier agent saved the totals and minimums at the uplink. For Auto
// that is the name of the device then. Call it before the earlier agent's uplinks are dropped.
func (us *uplinks) savedName(u *link) string {
	name := u.device.Name()
	if u.device.Config().Name != uplink.Auto {
		return name
	}
	earlier := uplink.Auto // it had no device
	for _, saved := range us.store.Uplinks {
		switch {
		case saved.Host == nil || strings.HasPrefix(saved.Name, uplink.IncomingName("")): // claimed now, or an IFB
		case saved.Name == name:
			return name
		case earlier == uplink.Auto:
			earlier = saved.Name
		}
	}
	return earlier
}

// dropLeftovers forgets the containers of sources that are no longer configured, because no event
// would report their end. It undoes the earlier agent's changes to them, as their numbers will be
// reused. Call it when the uplinks have their classifiers.
func (cs *containers) dropLeftovers() {
	for _, c := range cs.all() {
		if cs.hasSource(c.Seen.Runtime) {
			continue
		}
		cs.log.Info("no configured source reports this container any more; it is no longer controlled", "name", c.Seen.Name, "runtime", c.Seen.Runtime)
		cs.forget(c)
	}
}

// hasSource reports whether a source of that name is configured.
func (cs *containers) hasSource(name string) bool {
	return slices.Contains(cs.asked, name)
}

// savedContainer returns all that a source reports about a container.
func savedContainer(c discovery.Container) state.Container {
	s := state.Container{
		ID: c.ID, Name: c.Name, Runtime: c.Runtime, Labels: c.Labels,
		Image: c.Image, ImageLabels: c.ImageLabels, ImageUnknown: c.ImageUnknown,
		NetNSPath: c.NetNSPath, CgroupPath: c.CgroupPath, Interface: c.Interface,
		HostNetwork: c.HostNetwork, SharesNetwork: c.SharesNetworkOf, Pod: c.Pod.Name, StartedAt: c.StartedAt,
		Network: state.Network{None: c.NoNetwork, Configured: c.Configured, WithoutNetAdmin: c.Lacks.NetAdmin, WithoutNetRaw: c.Lacks.NetRaw, RoutingMesh: c.RoutingMesh, Encrypted: c.Encrypted, Members: c.Pod.Members},
	}
	for _, p := range c.Ports {
		s.Network.Ports = append(s.Network.Ports, state.Port(p))
	}
	return s
}

func recalledContainer(s state.Container) discovery.Container {
	c := discovery.Container{
		ID: s.ID, Name: s.Name, Runtime: s.Runtime, Labels: s.Labels,
		Image: s.Image, ImageLabels: s.ImageLabels, ImageUnknown: s.ImageUnknown,
		NetNSPath: s.NetNSPath, CgroupPath: s.CgroupPath, Interface: s.Interface,
		HostNetwork: s.HostNetwork, SharesNetworkOf: s.SharesNetwork, Pod: discovery.Pod{Name: s.Pod, Members: s.Network.Members}, StartedAt: s.StartedAt,
		NoNetwork: s.Network.None, Configured: s.Network.Configured, Lacks: discovery.Capabilities{NetAdmin: s.Network.WithoutNetAdmin, NetRaw: s.Network.WithoutNetRaw}, RoutingMesh: s.Network.RoutingMesh, Encrypted: s.Network.Encrypted,
	}
	for _, p := range s.Network.Ports {
		c.Ports = append(c.Ports, discovery.Port(p))
	}
	return c
}

func savedSet(v policy.Values) *state.Set {
	if v == (policy.Values{}) {
		return nil
	}
	return &state.Set{
		Weight: v.Weight, MinBPS: v.MinBPS, MaxBPS: v.MaxBPS,
		Priority: v.Priority, LatencyMS: v.LatencyMS, Class: (*string)(v.Class),
		EFMax: (*state.Part)(v.EFMax), AFMin: (*state.Part)(v.AFMin), DSCP: (*string)(v.DSCP),
		InWeight: v.InWeight, InMinBPS: v.InMinBPS, InMaxBPS: v.InMaxBPS, InPriority: v.InPriority, InLatencyMS: v.InLatencyMS,
	}
}

func recalledSet(s *state.Set) policy.Values {
	if s == nil {
		return policy.Values{}
	}
	return policy.Values{
		Weight: s.Weight, MinBPS: s.MinBPS, MaxBPS: s.MaxBPS,
		Priority: s.Priority, LatencyMS: s.LatencyMS, Class: (*v1.Class)(s.Class),
		EFMax: (*v1.Part)(s.EFMax), AFMin: (*v1.Part)(s.AFMin), DSCP: (*v1.DSCP)(s.DSCP),
		InWeight: s.InWeight, InMinBPS: s.InMinBPS, InMaxBPS: s.InMaxBPS, InPriority: s.InPriority, InLatencyMS: s.InLatencyMS,
	}
}

func savedDevices(list []attach.Device) []state.Attachment {
	var saved []state.Attachment
	for _, at := range list {
		saved = append(saved, state.Attachment{
			Interface: at.Interface, Tap: state.Tap(at.Tap), GSOMaxBytes: at.GSOBefore,
		})
	}
	return saved
}

func recalledDevices(saved []state.Attachment) []attach.Device {
	var list []attach.Device
	for _, at := range saved {
		list = append(list, attach.Device{
			Attachment: identity.Attachment{Interface: at.Interface, Tap: identity.Tap(at.Tap)},
			GSOBefore:  at.GSOMaxBytes,
			Saved:      true,
		})
	}
	return list
}

// savedCounted returns a share's totals, with the kernel's counters at that moment.
func savedCounted(s *share) state.Counted {
	last := s.uplink.ledger.Last(s.container.Number)
	return state.Counted{
		SentBytes: s.totals.SentBytes, SentPackets: s.totals.SentPackets, DroppedPackets: s.totals.DroppedPackets, MarkedPackets: s.totals.MarkedPackets,
		ClassBytes: last.ClassBytes, ClassPackets: last.ClassPackets, ClassDrops: last.DroppedPackets, ClassMarks: last.MarkedPackets,
		DirectBytes: last.DirectBytes, DirectPackets: last.DirectPackets,
	}
}

// recallCounted makes a share continue the totals of an earlier agent.
func recallCounted(s *share, saved state.Counted) {
	s.totals = stats.Totals{
		SentBytes: saved.SentBytes, SentPackets: saved.SentPackets, DroppedPackets: saved.DroppedPackets, MarkedPackets: saved.MarkedPackets,
	}
	s.uplink.ledger.Resume(s.container.Number, stats.Reading{
		Sent: stats.Sent{
			ClassBytes: saved.ClassBytes, ClassPackets: saved.ClassPackets,
			DirectBytes: saved.DirectBytes, DirectPackets: saved.DirectPackets,
		},
		Queue: stats.Queue{DroppedPackets: saved.ClassDrops, MarkedPackets: saved.ClassMarks},
	})
}
