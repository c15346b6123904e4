package flows

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/datapath/identity"
)

// Sizes of flow tables: the limit of all containers together, and of each one. A small machine has
// fewer: all tables take a fiftieth of its memory.
const (
	allFlows   = 1 << 20
	mostFlows  = 1 << 16
	leastFlows = 1 << 10

	// flowBytes is the memory of one flow, which the kernel allocates with the table.
	flowBytes     = 128
	memoryDivisor = 50
)

// Kernel is the kernel's flow tables; *identity.Flows implements it.
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

// Manager opens flow tables for containers and loads the classifier into the kernel. Live is safe
// for concurrent use; only one goroutine may call the other methods.
type Manager struct {
	Kernel
	// memoryBytes is the memory of the machine; 0 means enough.
	memoryBytes uint64
	// sizes holds the size of each number's table; nil until the tables of an earlier agent are
	// known.
	sizes map[uint16]int
	// wanted is the classifier to use.
	wanted Choice
	// classifies: the kernel has a classifier of this agent, inForce.
	classifies bool
	inForce    v1.Classifier
}

// New returns a manager for a machine with that much memory, 0 for enough. It changes nothing until Keep.
func New(kernel Kernel, memoryBytes uint64) *Manager {
	return &Manager{Kernel: kernel, memoryBytes: memoryBytes}
}

// Keep opens tables for numbers that have none and closes the tables of all other numbers; existing
// tables keep their flows. The first table makes it load the classifier. It returns an error if
// some tables could not be opened (Keeps) or closed.
func (m *Manager) Keep(numbers []uint16) error {
	if err := m.readTables(); err != nil {
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
		if err := m.OpenTable(number, size); err != nil {
			return errors.Join(append(errs, err)...)
		}
		m.sizes[number] = size
	}
	return errors.Join(errs...)
}

// Keeps reports whether a number has a table and its flows get verdicts.
func (m *Manager) Keeps(number uint16) bool { return m.classifies && m.sizes[number] > 0 }

// TrustDSCP sets whether the DSCP field of a number's packets selects their class. The number needs
// a table.
func (m *Manager) TrustDSCP(number uint16, trust bool) error {
	if !m.Keeps(number) {
		return nil // its flows are not tracked
	}
	return m.SetTrustDSCP(number, trust)
}

// Forget closes a number's table and drops its flows.
func (m *Manager) Forget(number uint16) error {
	if err := m.readTables(); err != nil || m.sizes[number] == 0 {
		return err
	}
	if err := m.CloseTable(number); err != nil {
		return err
	}
	delete(m.sizes, number)
	return nil
}

// readTables reads, once, the tables that an earlier agent left.
func (m *Manager) readTables() error {
	if m.sizes != nil {
		return nil
	}
	sizes := map[uint16]int{}
	for number := identity.NumberFirst; number <= identity.NumberLast; number++ {
		size, err := m.TableFlows(number)
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

// size returns the size of the next table: a sixteenth of the remaining flows. The first containers
// get room for tens of thousands of flows, and the thousandth gets some.
func (m *Manager) size() int {
	left := allFlows
	if m.memoryBytes > 0 {
		left = int(min(m.memoryBytes/memoryDivisor/flowBytes, allFlows))
	}
	for _, size := range m.sizes {
		left -= size
	}
	part := uint(max(left/16, leastFlows))
	return min(1<<(bits.Len(part)-1), mostFlows)
}

// classify loads the wanted classifier into the kernel.
func (m *Manager) classify() error {
	if m.classifies {
		return nil
	}
	return m.load(m.wanted)
}

// Use switches to another classifier. If the kernel has one already, the replacement is atomic and
// flows keep their verdicts; otherwise the first container that needs it loads it. Errors: a
// classifier for which the kernel lacks memory; the previous one stays in force then.
func (m *Manager) Use(choice Choice) error {
	if m.classifies && !m.wanted.same(choice) {
		if err := m.load(choice); err != nil {
			return err
		}
	}
	m.wanted = choice
	return nil
}

// load loads a classifier into the kernel.
func (m *Manager) load(choice Choice) error {
	if choice.classifier == nil {
		model, err := apps.Shipped()
		if err == nil {
			choice, err = choose(model)
		}
		if err != nil {
			return fmt.Errorf("the classifier that weir comes with: %w", err)
		}
	}
	if err := m.SetClassifier(*choice.classifier); err != nil {
		return err
	}
	choice.about.InForceSince = time.Now()
	m.classifies, m.inForce = true, choice.about
	return nil
}

// InForce returns the classifier that the kernel uses or, before the first container needs one, the
// one that it will get.
func (m *Manager) InForce() v1.Classifier {
	if m.classifies {
		return m.inForce
	}
	about := m.wanted.about
	about.Source = cmp.Or(about.Source, builtIn)
	return about
}
