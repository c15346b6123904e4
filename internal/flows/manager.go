package flows

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/appid"
	"github.com/weir-project/weir/internal/identity"
)

// How many flows the kernel remembers: of all containers together, as far as that is
// left, and of each.
const (
	allFlows   = 1 << 20
	mostFlows  = 1 << 16
	leastFlows = 1 << 10
)

// Kernel is where the flows are; *identity.Flows is it.
type Kernel interface {
	SetClassifier(identity.FlowClassifier) error
	OpenTable(number uint16, flows int) error
	TableFlows(number uint16) (int, error)
	CloseTable(number uint16) error
	AttachFlows(tap identity.Tap, number uint16) error
	AttachCgroup(path string, number uint16) error
	SetTrustDSCP(number uint16, trust bool) error
	Each(number uint16, fn func(identity.Flow) bool) error
	Close() error
}

// Manager gives containers tables for their flows and the kernel its classifier. Not
// for use by several goroutines at once; but Live is.
type Manager struct {
	kernel Kernel
	// sizes are those of the tables, by number; nil until it is known what an
	// earlier agent left.
	sizes map[uint16]int
	// wanted is by which classifier flows are to be judged.
	wanted Choice
	// classifies: the kernel has a classifier of this agent's, which is inForce.
	classifies bool
	inForce    v1.Classifier
}

// New makes a manager. Nothing is done until Keep.
func New(kernel Kernel) *Manager { return &Manager{kernel: kernel} }

// Keep gives numbers a table, those that have one keep it with its flows, and takes
// away all others. The first one that gets a table has the kernel get the classifier.
// An error says why some of them have none (Keeps), or others still have theirs.
func (m *Manager) Keep(numbers []uint16) error {
	if err := m.look(); err != nil {
		return err
	}
	var errs []error
	for number := range m.sizes {
		if !slices.Contains(numbers, number) {
			errs = append(errs, m.Forget(number))
		}
	}
	if len(numbers) == 0 {
		return errors.Join(errs...)
	}
	if err := m.classify(); err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, number := range numbers {
		if m.sizes[number] > 0 {
			continue
		}
		size := m.size()
		if err := m.kernel.OpenTable(number, size); err != nil {
			return errors.Join(append(errs, err)...)
		}
		m.sizes[number] = size
	}
	return errors.Join(errs...)
}

// Keeps says whether a number has a table, and its flows get verdicts.
func (m *Manager) Keeps(number uint16) bool { return m.classifies && m.sizes[number] > 0 }

// TrustDSCP says whether what a number that has a table writes into the DSCP field
// decides the class of its packets.
func (m *Manager) TrustDSCP(number uint16, trust bool) error {
	if !m.Keeps(number) {
		return nil // no flow of it is looked at
	}
	return m.kernel.SetTrustDSCP(number, trust)
}

// Forget takes a number's table away, with its flows.
func (m *Manager) Forget(number uint16) error {
	if err := m.look(); err != nil || m.sizes[number] == 0 {
		return err
	}
	if err := m.kernel.CloseTable(number); err != nil {
		return err
	}
	delete(m.sizes, number)
	return nil
}

// look finds out, once, which tables there are.
func (m *Manager) look() error {
	if m.sizes != nil {
		return nil
	}
	sizes := map[uint16]int{}
	for number := identity.NumberFirst; number <= identity.NumberLast; number++ {
		size, err := m.kernel.TableFlows(number)
		if err != nil {
			return err
		}
		if size > 0 {
			sizes[number] = size
		}
	}
	m.sizes = sizes
	return nil
}

// size is how many flows the next table holds: a sixteenth of what is left, so that the
// first containers have room for tens of thousands, and the thousandth has some.
func (m *Manager) size() int {
	left := allFlows
	for _, size := range m.sizes {
		left -= size
	}
	part := uint(max(left/16, leastFlows))
	return min(1<<(bits.Len(part)-1), mostFlows)
}

// classify has the kernel get the classifier that is wanted.
func (m *Manager) classify() error {
	if m.classifies {
		return nil
	}
	return m.load(m.wanted)
}

// Use says by which classifier flows are judged from now on. Where the kernel has one
// it is put in its place, all at once, and flows keep their verdicts; otherwise the
// first container that needs it has the kernel get it. Errors: one that the kernel has
// no memory for; the one before stays in force then.
func (m *Manager) Use(choice Choice) error {
	if m.classifies && !m.wanted.same(choice) {
		if err := m.load(choice); err != nil {
			return err
		}
	}
	m.wanted = choice
	return nil
}

// load has the kernel get a classifier.
func (m *Manager) load(choice Choice) error {
	if choice.classifier == nil {
		model, err := appid.Shipped()
		if err == nil {
			choice, err = choose(model)
		}
		if err != nil {
			return fmt.Errorf("the classifier that weir comes with: %w", err)
		}
	}
	if err := m.kernel.SetClassifier(*choice.classifier); err != nil {
		return err
	}
	choice.about.InForceSince = time.Now()
	m.classifies, m.inForce = true, choice.about
	return nil
}

// InForce is the classifier that the kernel has of this agent's; until the first
// container needs one, what it is to get then.
func (m *Manager) InForce() v1.Classifier {
	if m.classifies {
		return m.inForce
	}
	about := m.wanted.about
	about.Source = cmp.Or(about.Source, builtIn)
	return about
}

// Attach has what passes a tap be classified, for a number that Keep gave a table.
func (m *Manager) Attach(tap identity.Tap, number uint16) error {
	return m.kernel.AttachFlows(tap, number)
}

// AttachCgroup has what the sockets of a host-mode container's cgroup are sent count for
// its flows, for a number that Keep gave a table.
func (m *Manager) AttachCgroup(path string, number uint16) error {
	return m.kernel.AttachCgroup(path, number)
}

// Close ends it. What is in the kernel stays.
func (m *Manager) Close() error { return m.kernel.Close() }
