package qos

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/weir-project/weir/internal/apps"
	"github.com/weir-project/weir/internal/share/policy"
)

// MaxQueues limits the queues of a port (SDN-LLQ, section III.A.4).
const MaxQueues = 8

// lowestPriority is HTB's lowest priority, TC_HTB_NUMPRIO - 1.
const lowestPriority = 7

// Part is a rate in bits per second, or a fraction of the port's rate; the zero value means
// not given.
type Part struct {
	Fraction float64
	BPS      uint64
}

func (p Part) given() bool { return p != Part{} }

// of returns the part in bits per second.
func (p Part) of(rateBPS uint64) uint64 {
	if p.BPS != 0 {
		return p.BPS
	}
	return uint64(p.Fraction * float64(rateBPS))
}

// Spec is the configuration of one queue. Without a minimum, queue 0 gets the rest and
// others the smallest rate of a queue; without a maximum, the port's rate.
type Spec struct {
	ID       int
	Min, Max Part
	Priority int // 0 to 7, the lowest borrows first
}

// Map are the queues of a port, and which traffic each carries.
type Map struct {
	// Queues are in the order of their numbers; queue 0 always exists.
	Queues []Spec
	Levels [apps.NumLevels]int
	// Types maps application types (index of apps.Types) to dedicated queues.
	Types map[int]int
}

// Map returns the three-queue map of shares.
func (s Shares) Map() Map {
	return Map{
		Queues: []Spec{
			{ID: IDs[apps.BE], Priority: 2},
			{ID: IDs[apps.AF], Min: Part{Fraction: s.AFMin}, Priority: 1},
			{ID: IDs[apps.EF], Min: Part{Fraction: s.EFMax}, Priority: 0},
		},
		Levels: IDs,
	}
}

// mapFile is the YAML form of a map.
type mapFile struct {
	Queues map[string]specFile `yaml:"queues"`
	Map    map[string]string   `yaml:"map"`
}

type specFile struct {
	Min      string `yaml:"min"`
	Max      string `yaml:"max"`
	Priority *int   `yaml:"priority"`
}

// ReadMap parses a map in YAML (docs/sdn.md). Errors say what to write instead.
func ReadMap(b []byte) (Map, error) {
	var file mapFile
	if err := yaml.UnmarshalWithOptions(b, &file, yaml.Strict()); err != nil {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return Map{}, fmt.Errorf("line %d: %s; known are queues (min, max, priority of each) and map", at.GetToken().Position.Line, at.GetMessage())
		}
		return Map{}, fmt.Errorf("read YAML: %w", err)
	}
	if len(file.Queues) == 0 {
		return Map{}, errors.New("queues: is empty; write for example {1: {min: 30%}, 2: {min: 50%}}")
	}
	m := Map{Levels: IDs, Types: map[int]int{}}
	for _, name := range slices.Sorted(maps.Keys(file.Queues)) {
		q, err := file.Queues[name].spec(name)
		if err != nil {
			return Map{}, err
		}
		m.Queues = append(m.Queues, q)
	}
	if !m.has(0) {
		m.Queues = append(m.Queues, Spec{Priority: lowestPriority})
	}
	slices.SortFunc(m.Queues, func(a, b Spec) int { return cmp.Compare(a.ID, b.ID) })
	written := map[apps.Level]bool{}
	for _, name := range slices.Sorted(maps.Keys(file.Map)) {
		if err := m.assign(name, file.Map[name], written); err != nil {
			return Map{}, err
		}
	}
	return m, m.check(written)
}

// spec parses one queue.
func (f specFile) spec(name string) (Spec, error) {
	id, err := strconv.Atoi(name)
	if err != nil || id < 0 || id >= MaxQueues {
		return Spec{}, fmt.Errorf("queues: %q is no number of a queue: a port has up to %d, numbered 0 to %d", name, MaxQueues, MaxQueues-1)
	}
	q := Spec{ID: id, Priority: lowestPriority}
	if f.Priority != nil {
		q.Priority = *f.Priority
	}
	if q.Priority < 0 || q.Priority > lowestPriority {
		return q, fmt.Errorf("queues: %d: priority %d is not within 0 (first) and %d", id, q.Priority, lowestPriority)
	}
	if q.Min, err = parsePart(f.Min); err != nil {
		return q, fmt.Errorf("queues: %d: min: %q %w", id, f.Min, err)
	}
	if q.Max, err = parsePart(f.Max); err != nil {
		return q, fmt.Errorf("queues: %d: max: %q %w", id, f.Max, err)
	}
	return q, nil
}

// parsePart parses a rate or a percentage; an empty text gives the zero Part.
func parsePart(s string) (p Part, err error) {
	if s == "" {
		return p, nil
	}
	if number, ok := strings.CutSuffix(s, "%"); ok {
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !(v > 0 && v <= 100) {
			return p, errors.New("is no percentage above 0 % and up to 100 %")
		}
		return Part{Fraction: v / 100}, nil
	}
	if p.BPS, err = policy.ParseRate(s); err != nil {
		return p, fmt.Errorf("%w, or a percentage of the port's rate such as 30%%", err)
	}
	if p.BPS < minQueueBPS {
		return p, fmt.Errorf("is less than %d bit/s, with which HTB keeps no time", minQueueBPS)
	}
	return p, nil
}

// assign maps a traffic class or an application type to a queue.
func (m *Map) assign(name, queue string, written map[apps.Level]bool) error {
	id, err := strconv.Atoi(queue)
	if err != nil {
		return fmt.Errorf("map: %s: %q is no number of a queue", name, queue)
	}
	level, err := apps.ParseLevel(name)
	i := slices.Index(apps.Types, strings.ToUpper(name))
	_, twice := m.Types[i]
	switch {
	case err == nil && written[level]:
		return fmt.Errorf("map: %s is given twice", level)
	case err == nil:
		m.Levels[level], written[level] = id, true
	case i < 0:
		return fmt.Errorf("map: %q is neither a level (ef, af, be) nor an application type (%s)", name, strings.Join(apps.Types, ", "))
	case twice:
		return fmt.Errorf("map: %s is given twice", apps.Types[i])
	default:
		m.Types[i] = id
	}
	return nil
}

func (m *Map) has(id int) bool {
	return slices.ContainsFunc(m.Queues, func(q Spec) bool { return q.ID == id })
}

// check returns an error if a map is invalid at any port rate.
func (m *Map) check(written map[apps.Level]bool) error {
	if m.Levels[apps.BE] != 0 {
		return fmt.Errorf("map: be goes to queue %d; it must be 0, where everything goes that no queue is named for", m.Levels[apps.BE])
	}
	for l, id := range m.Levels {
		if !m.has(id) {
			level := strings.ToLower(apps.Level(l).String())
			how := ""
			if !written[apps.Level(l)] {
				how = " unless map says otherwise"
			}
			return fmt.Errorf("map: %s goes to queue %d%s, and there is none: give it under queues, or write another number", level, id, how)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(m.Types)) {
		if !m.has(m.Types[i]) {
			return fmt.Errorf("map: %s goes to queue %d, and there is none: give it under queues, or write another number", apps.Types[i], m.Types[i])
		}
	}
	fractions := 0.0
	for _, q := range m.Queues {
		fractions += q.Min.Fraction
	}
	if fractions > 1+1e-9 {
		return fmt.Errorf("queues: the minimums are %.4g %% of the rate together: at most 100", 100*fractions)
	}
	return nil
}

// Field is a field of packets whose value is their mark.
type Field string

// The fields of marks.
const (
	FieldDSCP Field = "dscp"
	FieldPCP  Field = "pcp"  // priority of a VLAN tag
	FieldMark Field = "mark" // skb->mark of the switch's host
)

// By is what chooses the queue of a packet: a field, and for skb->mark which bits of it.
type By struct {
	Field Field
	Mask  uint32
}

// ParseBy parses dscp, pcp, mark or mark/MASK.
func ParseBy(s string) (By, error) {
	field, mask, masked := strings.Cut(strings.ToLower(s), "/")
	by := By{Field: Field(field)}
	switch {
	case !masked && (by.Field == FieldDSCP || by.Field == FieldPCP):
		return by, nil
	case !masked && by.Field == FieldMark:
		by.Mask = math.MaxUint32
		return by, nil
	case by.Field == FieldMark:
		ones, err := strconv.ParseUint(mask, 0, 32)
		if by.Mask = uint32(ones); err != nil || ones == 0 {
			return by, fmt.Errorf("%q: %q is no mask of 32 bits such as 0xf0", s, mask)
		}
		if bits.OnesCount32(by.Mask) != bits.Len32(by.Mask)-bits.TrailingZeros32(by.Mask) {
			return by, fmt.Errorf("%q: the bits of the mask are not side by side: write for example mark/0xf or mark/0xf00", s)
		}
		return by, nil
	}
	return by, fmt.Errorf("%q is not dscp, pcp, mark or mark/MASK", s)
}

// OfMarks returns the queue of each mark whose queue is not 0. A VLAN priority counts as the class
// selector of that number, CS0 to CS7, and skb->mark is the number of a queue.
func (m *Map) OfMarks(by By) map[uint8]int {
	queues := map[uint8]int{}
	for _, q := range m.Queues {
		if by.Field == FieldMark && q.ID != 0 {
			queues[uint8(q.ID)] = q.ID
		}
	}
	for _, mark := range policy.Marks() {
		level, err := apps.ParseLevel(string(mark.Class))
		switch {
		case err != nil || m.Levels[level] == 0:
		case by.Field == FieldDSCP:
			queues[mark.DSCP] = m.Levels[level]
		case by.Field == FieldPCP && mark.DSCP%8 == 0:
			queues[mark.DSCP/8] = m.Levels[level]
		}
	}
	return queues
}

// EFBound returns how much EF may come in at a port with a given rate: the minimum of its queue, or the
// maximum if it has none. It returns an error if the queues do not fit the rate.
func (m *Map) EFBound(rateBPS uint64) (uint64, error) {
	queues, err := m.Of(rateBPS)
	if err != nil {
		return 0, err
	}
	for i, s := range m.Queues {
		if s.ID == m.Levels[apps.EF] && s.Min.given() {
			return queues[i].MinBPS, nil
		} else if s.ID == m.Levels[apps.EF] {
			return queues[i].MaxBPS, nil
		}
	}
	return rateBPS, nil
}

// promiseReserve is the fraction of a port's rate that is not promised: what is sent without a queue
// needs some of it.
const promiseReserve = 0.05

// promisable returns how much may be promised beside the queues of the map: what queue 0 has because
// others leave it, less the reserve.
func (m *Map) promisable(rateBPS uint64, queues []Queue) uint64 {
	for i, s := range m.Queues {
		if reserve := uint64(promiseReserve * float64(rateBPS)); s.ID == 0 && !s.Min.given() && queues[i].MinBPS > reserve {
			return queues[i].MinBPS - reserve
		}
	}
	return 0
}

// Of returns the queues of a port with a given rate, or an error if their minimums do not
// fit.
func (m *Map) Of(rateBPS uint64) ([]Queue, error) {
	var out []Queue
	rest := -1
	sum := uint64(0)
	for _, s := range m.Queues {
		q := Queue{ID: s.ID, MinBPS: max(s.Min.of(rateBPS), minQueueBPS), MaxBPS: rateBPS, Priority: s.Priority}
		if s.Max.given() {
			q.MaxBPS = max(s.Max.of(rateBPS), minQueueBPS)
		}
		if q.MaxBPS > rateBPS {
			return nil, fmt.Errorf("queue %d has a maximum of %s, more than the port's rate of %s", q.ID, mbit(q.MaxBPS), mbit(rateBPS))
		}
		if q.MinBPS > q.MaxBPS {
			return nil, fmt.Errorf("queue %d has a minimum of %s, more than its maximum of %s", q.ID, mbit(q.MinBPS), mbit(q.MaxBPS))
		}
		sum += q.MinBPS
		out = append(out, q)
		if s.ID == 0 && !s.Min.given() {
			rest = len(out) - 1
		}
	}
	if sum > rateBPS+uint64(len(out))*minQueueBPS {
		return nil, fmt.Errorf("the minimums of its queues are %s together, more than the port's rate of %s", mbit(sum), mbit(rateBPS))
	}
	if rest >= 0 {
		out[rest].MinBPS = max(min(rateBPS-min(sum-minQueueBPS, rateBPS), out[rest].MaxBPS), minQueueBPS)
	}
	return out, nil
}
