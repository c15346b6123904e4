package flow

import (
	_ "embed" // for the table of ports
	"fmt"
	"strconv"
	"strings"
	"sync"
)

//go:embed ports.txt
var portsText string

// Ports maps ports to application types: 0 for ports without a known service, otherwise 1 +
// the type's index. The 65,536 TCP ports come first, then the UDP ports. BPF programs use
// the same array.
type Ports [2 << 16]uint8

// portIndex returns the index of a port in Ports.
func portIndex(proto, port int) int {
	if proto == UDP {
		return 1<<16 | port
	}
	return port
}

// Service returns 1 + the index of a port's application type, or 0 if the port has none.
func (p *Ports) Service(proto, port int) uint8 {
	if (proto != TCP && proto != UDP) || port < 0 || port > 65535 {
		return 0
	}
	return p[portIndex(proto, port)]
}

// KnownPorts returns Weir's built-in table; types are the names of the application types in
// order.
func KnownPorts(types []string) *Ports {
	return knownPorts(strings.Join(types, " "))
}

var (
	portsMu    sync.Mutex
	portsCache = map[string]*Ports{}
)

func knownPorts(types string) *Ports {
	portsMu.Lock()
	defer portsMu.Unlock()
	if p, ok := portsCache[types]; ok {
		return p
	}
	p, err := ParsePorts(portsText, strings.Fields(types))
	if err != nil {
		panic("the table of ports that comes with weir: " + err.Error())
	}
	portsCache[types] = p
	return p
}

// ParsePorts parses a table of ports with lines TYPE tcp|udp|both PORTS NAME.
func ParsePorts(text string, types []string) (*Ports, error) {
	p := &Ports{}
	line := 0
	for s := range strings.Lines(text) {
		line++
		s, _, _ = strings.Cut(s, "#")
		fields := strings.Fields(s)
		if len(fields) == 0 {
			continue
		}
		if err := p.add(fields, types); err != nil {
			return nil, fmt.Errorf("read table of ports: line %d: %w", line, err)
		}
	}
	return p, nil
}

func (p *Ports) add(fields, types []string) error {
	if len(fields) != 4 {
		return fmt.Errorf("%d words: want TYPE tcp|udp|both PORTS NAME", len(fields))
	}
	code := uint8(0)
	for i, t := range types {
		if t == fields[0] {
			code = uint8(i + 1)
		}
	}
	if code == 0 {
		return fmt.Errorf("%q is none of %s", fields[0], strings.Join(types, ", "))
	}
	protos, ok := map[string][]int{"tcp": {TCP}, "udp": {UDP}, "both": {TCP, UDP}}[fields[1]]
	if !ok {
		return fmt.Errorf("%q is none of tcp, udp and both", fields[1])
	}
	for part := range strings.SplitSeq(fields[2], ",") {
		from, to, isRange := strings.Cut(part, "-")
		low, err1 := strconv.ParseUint(from, 10, 16)
		high, err2 := low, error(nil)
		if isRange {
			high, err2 = strconv.ParseUint(to, 10, 16)
		}
		if err1 != nil || err2 != nil || high < low {
			return fmt.Errorf("%q is neither a port nor a range of ports", part)
		}
		for port := low; port <= high; port++ {
			for _, proto := range protos {
				p[portIndex(proto, int(port))] = code
			}
		}
	}
	return nil
}
