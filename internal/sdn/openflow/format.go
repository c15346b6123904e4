package openflow

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Format returns a message as one line of JSON with the specification's field names. Values
// with names are written as names, or as numbers if numbers is set; byte strings are
// base64. Lengths and padding are omitted.
func Format(m Message, numbers bool) []byte {
	c := &coder{mode: formatting, numbers: numbers}
	h := *m.header()
	if h.Version == 0 {
		h.Version = Version
	}
	t := m.MessageType()
	c.object(func(c *coder) {
		u8(c, "version", &h.Version)
		u8(c, "type", &t)
		u32(c, "xid", &h.XID)
		m.code(c)
	})
	return c.b
}

// enumNames are the named values of a type.
type enumNames struct {
	flags bool
	names []enumName
}

type enumName struct {
	value uint32
	name  string
}

// name returns the name of a value, or "" if it has none.
func (e *enumNames) name(v uint32) string {
	for _, n := range e.names {
		if n.value == v {
			return n.name
		}
	}
	return ""
}

// split returns the names of set flags, and the unnamed flags as one number.
func (e *enumNames) split(v uint32) (names []string, rest uint32) {
	for _, n := range e.names {
		if v&n.value == n.value && n.value != 0 {
			names, v = append(names, n.name), v&^n.value
		}
	}
	return names, v
}

func (e *enumNames) text(v uint32) string {
	if e.flags && v != 0 {
		names, rest := e.split(v)
		if rest != 0 {
			names = append(names, fmt.Sprintf("%#x", rest))
		}
		return strings.Join(names, "|")
	}
	if name := e.name(v); name != "" {
		return name
	}
	return strconv.FormatUint(uint64(v), 10)
}

// comma writes a comma if a value precedes.
func (c *coder) comma() {
	if n := len(c.b); n > 0 && c.b[n-1] != '{' && c.b[n-1] != '[' && c.b[n-1] != ':' {
		c.b = append(c.b, ',')
	}
}

func (c *coder) key(name string) {
	c.comma()
	c.b = append(append(append(c.b, '"'), name...), '"', ':')
}

func (c *coder) object(fields func(c *coder)) {
	c.comma()
	c.b = append(c.b, '{')
	fields(c)
	c.b = append(c.b, '}')
}

func (c *coder) list(name string, n int, one func(i int)) {
	c.key(name)
	c.b = append(c.b, '[')
	for i := range n {
		one(i)
	}
	c.b = append(c.b, ']')
}

// formatNumber writes a number, or its name if v has a type with names.
func (c *coder) formatNumber(v any, n uint64) {
	named, ok := v.(interface{ enum() *enumNames })
	if !ok || c.numbers {
		c.comma()
		c.b = strconv.AppendUint(c.b, n, 10)
		return
	}
	e := named.enum()
	if !e.flags {
		if name := e.name(uint32(n)); name != "" {
			c.formatString(name)
			return
		}
		c.formatNumber(nil, n)
		return
	}
	names, rest := e.split(uint32(n))
	c.comma()
	c.b = append(c.b, '[')
	for _, name := range names {
		c.formatString(name)
	}
	if rest != 0 {
		c.formatNumber(nil, uint64(rest))
	}
	c.b = append(c.b, ']')
}

func (c *coder) formatString(s string) {
	c.comma()
	quoted, _ := json.Marshal(s) // a string always has a JSON form
	c.b = append(c.b, quoted...)
}

func (c *coder) formatBytes(b []byte) { c.formatString(base64.StdEncoding.EncodeToString(b)) }

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string { return formatMAC(m[:]) }

func formatMAC(b []byte) string {
	parts := make([]string, len(b))
	for i := range b {
		parts[i] = hex.EncodeToString(b[i : i+1])
	}
	return strings.Join(parts, ":")
}

func formatIPv4(b []byte) string { return fmt.Sprintf("%d.%d.%d.%d", b[0], b[1], b[2], b[3]) }

// formatIPv6 returns an address in the form of RFC 5952: the first of the longest runs of
// zeros is shortened to "::".
func formatIPv6(b []byte) string {
	var groups []string
	from, to := 0, 0 // the longest run of zeros
	for i := 0; i < 8; i++ {
		groups = append(groups, strconv.FormatUint(bigEndian(b[2*i:2*i+2]), 16))
		end := i
		for end < 8 && b[2*end] == 0 && b[2*end+1] == 0 {
			end++
		}
		if end-i > to-from && end-i > 1 {
			from, to = i, end
		}
	}
	if from == to {
		return strings.Join(groups, ":")
	}
	return strings.Join(groups[:from], ":") + "::" + strings.Join(groups[to:], ":")
}
