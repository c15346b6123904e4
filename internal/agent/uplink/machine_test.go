package uplink

import (
	"cmp"
	"errors"
	"maps"
	"time"

	"github.com/weir-project/weir/internal/datapath/identity"
	"github.com/weir-project/weir/internal/datapath/kernel"
	"github.com/weir-project/weir/internal/share/sched"
)

// fakeMachine is a kernel with devices, by index.
type fakeMachine struct {
	devices map[int]*fakeDevice
	// defaultIndex is the index of the default route's device.
	defaultIndex int
	// made counts the IFBs that were made.
	made int
	// fail is what calls of that name end with.
	fail map[string]error
}

type fakeDevice struct {
	kernel.Link
	speedBPS   uint64
	root       kernel.Handle // 0: the kernel's default
	kind       string
	classifier *fakeClassifier // attached
	// obstacle and missed are about other programs at the device's ingress hook.
	obstacle string
	missed   *Problem
	applied  capacity // of the tree in the kernel
}

func newMachine() *fakeMachine {
	return &fakeMachine{devices: map[int]*fakeDevice{}, fail: map[string]error{}}
}

// add makes a device.
func (m *fakeMachine) add(ifindex int, name string, speedBPS uint64) *fakeDevice {
	d := &fakeDevice{Link: kernel.Link{Index: ifindex, Name: name, Up: true, GSOMaxBytes: 65536}, speedBPS: speedBPS}
	m.devices[ifindex] = d
	return d
}

func (m *fakeMachine) LinkByIndex(ifindex int) (kernel.Link, error) {
	d, err := m.device(ifindex)
	if err != nil {
		return kernel.Link{}, err
	}
	return d.Link, m.fail["LinkByIndex"]
}

func (m *fakeMachine) LinkByName(name string) (kernel.Link, error) {
	for _, d := range m.devices {
		if d.Name == name {
			return d.Link, m.fail["LinkByName"]
		}
	}
	return kernel.Link{}, kernel.ErrNoLink
}

func (m *fakeMachine) DefaultLink() (kernel.Link, error) { return m.LinkByIndex(m.defaultIndex) }

func (m *fakeMachine) Links() ([]kernel.Link, error) {
	var links []kernel.Link
	for _, d := range m.devices {
		links = append(links, d.Link)
	}
	return links, m.fail["Links"]
}

func (m *fakeMachine) device(ifindex int) (*fakeDevice, error) {
	if d := m.devices[ifindex]; d != nil {
		return d, nil
	}
	return nil, kernel.ErrNoLink
}

func (m *fakeMachine) SpeedBPS(name string) (uint64, error) {
	for _, d := range m.devices {
		if d.Name == name {
			return d.speedBPS, m.fail["SpeedBPS"]
		}
	}
	return 0, kernel.ErrNoLink
}

func (m *fakeMachine) SetGSOMaxBytes(ifindex int, bytes uint32) error {
	d, err := m.device(ifindex)
	if err == nil && m.fail["SetGSOMaxBytes"] == nil {
		d.GSOMaxBytes = bytes
	}
	return errors.Join(err, m.fail["SetGSOMaxBytes"])
}

func (m *fakeMachine) Qdiscs(ifindex int) ([]kernel.Qdisc, error) {
	d, err := m.device(ifindex)
	if err != nil || d.root == 0 {
		return nil, errors.Join(err, m.fail["Qdiscs"])
	}
	return []kernel.Qdisc{{Handle: d.root, Parent: kernel.HandleRoot, Options: kernel.Unknown{Name: d.kind}}}, m.fail["Qdiscs"]
}

func (m *fakeMachine) Save(ifindex int) ([]kernel.SavedObject, error) {
	d, err := m.device(ifindex)
	if err != nil {
		return nil, err
	}
	return []kernel.SavedObject{{Handle: d.root, Parent: kernel.HandleRoot, Kind: d.kind}}, m.fail["Save"]
}

func (m *fakeMachine) Restore(ifindex int, objects []kernel.SavedObject) error {
	d, err := m.device(ifindex)
	if err == nil && m.fail["Restore"] == nil {
		d.root, d.kind = objects[0].Handle, objects[0].Kind
	}
	return errors.Join(err, m.fail["Restore"])
}

func (m *fakeMachine) DeleteRoot(ifindex int) error {
	d, err := m.device(ifindex)
	if err == nil {
		d.root, d.kind = 0, ""
	}
	return errors.Join(err, m.fail["DeleteRoot"])
}

func (m *fakeMachine) Classified(ifindex int) (bool, error) {
	d, err := m.device(ifindex)
	if err := errors.Join(err, m.fail["Classified"]); err != nil {
		return false, err
	}
	if d.missed != nil {
		err = d.missed
	}
	return d.classifier != nil, err
}

func (m *fakeMachine) HasClassifier(ifindex int) (bool, error) {
	d, err := m.device(ifindex)
	return err == nil && d.classifier != nil, errors.Join(err, m.fail["HasClassifier"])
}

func (m *fakeMachine) Declassify(ifindex int) error {
	d, err := m.device(ifindex)
	if err == nil {
		d.classifier = nil
	}
	return errors.Join(err, m.fail["Declassify"])
}

func (m *fakeMachine) Obstacle(ifindex int) (string, error) {
	d, err := m.device(ifindex)
	if err != nil {
		return "", err
	}
	return d.obstacle, m.fail["Obstacle"]
}

func (*fakeMachine) Discard(string) error { return nil }

func (m *fakeMachine) Incoming(from func() (string, int)) Machine { return &fakeIncoming{m, from} }

// fakeIncoming is the machine of an IFB, which it makes and deletes, with the speed and the index of its uplink.
type fakeIncoming struct {
	*fakeMachine
	from func() (name string, ifindex int)
}

func (m *fakeIncoming) LinkByName(name string) (kernel.Link, error) {
	if _, from := m.from(); from == 0 {
		return kernel.Link{}, cmp.Or(m.Discard(name), kernel.ErrNoLink)
	}
	if _, err := m.fakeMachine.LinkByName(name); errors.Is(err, kernel.ErrNoLink) {
		m.made++
		m.add(100+m.made, name, 0).Kind = kernel.KindIFB
	}
	return m.ready(m.fakeMachine.LinkByName(name))
}

func (m *fakeIncoming) LinkByIndex(ifindex int) (kernel.Link, error) {
	if _, from := m.from(); from == 0 {
		return kernel.Link{}, kernel.ErrNoLink
	}
	return m.ready(m.fakeMachine.LinkByIndex(ifindex))
}

func (m *fakeIncoming) Discard(name string) error {
	if m.fail["Discard"] == nil {
		maps.DeleteFunc(m.devices, func(_ int, d *fakeDevice) bool { return d.Name == name })
	}
	return m.fail["Discard"]
}

func (m *fakeIncoming) ready(link kernel.Link, err error) (kernel.Link, error) {
	_, link.UplinkIndex = m.from()
	return link, err
}

func (m *fakeIncoming) SpeedBPS(string) (uint64, error) {
	name, _ := m.from()
	bps, err := m.fakeMachine.SpeedBPS(name)
	return bps / 100 * incomingPercent, err
}

func (m *fakeMachine) OpenClassifier(ifindex int, _ sched.Majors) (identity.Classifier, Delays, error) {
	d, err := m.device(ifindex)
	if err := errors.Join(err, m.fail["OpenClassifier"]); err != nil {
		return nil, nil, err
	}
	d.classifier = &fakeClassifier{ifindex: ifindex}
	return d.classifier, fakeDelays{}, nil
}

func (m *fakeMachine) Scheduler(ifindex int) Scheduler {
	return &fakeScheduler{machine: m, ifindex: ifindex}
}

// fakeScheduler makes itself the root where the kernel has its default.
type fakeScheduler struct {
	machine *fakeMachine
	ifindex int
	// connected is the classifier that it was given last.
	connected sched.Traffic
	// turn and turnErr are what becomes of the next look.
	turn    sched.Turn
	turnErr error
}

func (*fakeScheduler) Name() string             { return "fake" }
func (*fakeScheduler) Majors() sched.Majors     { return sched.Majors{} }
func (*fakeScheduler) Forget()                  {}
func (*fakeScheduler) Snapshot(*sched.Snapshot) {}
func (s *fakeScheduler) Disconnect()            { s.connected = nil }

func (*fakeScheduler) Owns(qdiscs []kernel.Qdisc) bool {
	return len(qdiscs) > 0 && qdiscs[0].Handle == ourRoot
}

func (s *fakeScheduler) Connect(want sched.Tree, traffic sched.Traffic) error {
	s.connected = traffic
	return traffic.SetDirect(sched.Bounds{RateBPS: want.RateBPS, OverheadBytes: want.OverheadBytes}, nil)
}

func (s *fakeScheduler) Turn(time.Time, bool) (sched.Turn, error) { return s.turn, s.turnErr }

const ourRoot = kernel.Handle(0x7e0f << 16)

func (s *fakeScheduler) Apply(want sched.Tree) error {
	d, err := s.machine.device(s.ifindex)
	if err := errors.Join(err, s.machine.fail["Apply"]); err != nil {
		return err
	}
	if d.root != 0 && d.root != ourRoot {
		return errors.New("file exists")
	}
	if s.connected != nil {
		if err := s.connected.SetDirect(sched.Bounds{RateBPS: want.RateBPS, OverheadBytes: want.OverheadBytes}, nil); err != nil {
			return err
		}
	}
	d.root, d.kind, d.applied = ourRoot, "htb", capacity{rateBPS: want.RateBPS, overheadBytes: want.OverheadBytes}
	return nil
}

func (s *fakeScheduler) Remove() error {
	d, err := s.machine.device(s.ifindex)
	if err == nil && d.root == ourRoot {
		d.root, d.kind = 0, ""
	}
	return errors.Join(err, s.machine.fail["Remove"])
}

type fakeClassifier struct {
	ifindex int
	bounds  sched.Bounds
	closed  bool
}

func (c *fakeClassifier) SetDirect(bounds sched.Bounds, _ []sched.Direct) error {
	if c.closed {
		return errors.New("closed")
	}
	c.bounds = bounds
	return nil
}

func (*fakeClassifier) SetMinors(uint16, sched.Minors) error { return nil }
func (*fakeClassifier) ClassOffered(uint16) (o identity.ClassOffered, _ error) {
	return o, nil
}
func (*fakeClassifier) SetEFRate(uint16, uint64) error                { return nil }
func (*fakeClassifier) OfferedBytes([]uint64) error                   { return nil }
func (*fakeClassifier) ArmWakeup() error                              { return nil }
func (*fakeClassifier) WokenAt() (none time.Time, _ error)            { return none, nil }
func (*fakeClassifier) DirectSent(uint16) (uint64, uint32, error)     { return 0, 0, nil }
func (*fakeClassifier) Apply(identity.Table) (none identity.Refusals) { return none }
func (*fakeClassifier) Forget(uint16) error                           { return nil }
func (*fakeClassifier) Carry([]kernel.Stacked) error                  { return nil }
func (c *fakeClassifier) Close() error                                { c.closed = true; return nil }

type fakeDelays struct{}

func (fakeDelays) Read(uint16, *identity.Histogram) error { return nil }
func (fakeDelays) ReadClass(uint16, sched.TrafficClass, *identity.Histogram) error {
	return nil
}
func (fakeDelays) Keep(func(uint16) bool) {}
func (fakeDelays) Pause() error           { return nil }
func (fakeDelays) Resume() error          { return nil }
func (fakeDelays) Close() error           { return nil }
