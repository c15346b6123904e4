package main

import (
	"bytes"
	"fmt"
	"strings"
)

// layout is a structure with its parts in order.
type layout struct {
	name, section, text string
	parts               []part
}

// part is one line of a layout.
type part struct {
	words   []string
	comment string
}

// initialisms are the words of the specification's names that Go writes otherwise.
var initialisms = map[string]string{
	"id": "ID", "ids": "IDs", "crc": "CRC", "oxm": "OXM", "mpls": "MPLS", "ttl": "TTL", "hw_addr": "HWAddr", "ethertype": "EtherType",
}

// goName is the Go name of a field of the specification.
func goName(name string) string {
	if whole, ok := initialisms[name]; ok {
		return whole
	}
	out := ""
	for word := range strings.SplitSeq(name, "_") {
		if known, ok := initialisms[word]; ok {
			out += known
		} else {
			out += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return out
}

// variant is an action or an instruction with the types that it stands for.
type variant struct {
	layout string
	values []string
}

// structure writes the Go type of a layout and its method code.
type structure struct {
	fields, code bytes.Buffer
	variant      *variant
	kind         string // of variant
	fallback     string // of the switch that is open
}

// writeLayout writes a structure. Messages have a header.
func writeLayout(b *bytes.Buffer, l layout, message bool) (kind string, v *variant, err error) {
	s := &structure{}
	if message {
		fmt.Fprintln(&s.fields, "Header")
	}
	for _, p := range l.parts {
		if err := s.add(p); err != nil {
			return "", nil, fmt.Errorf("struct %s: %w", l.name, err)
		}
	}
	section := ""
	if l.section != "-" {
		section = " Section " + l.section + "."
	}
	fmt.Fprintf(b, "\n// %s %s%s\ntype %[1]s struct {\n%[4]s}\n", l.name, l.text, section, &s.fields)
	if s.variant != nil {
		s.variant.layout = l.name
		value := s.variant.values[0]
		if len(s.variant.values) > 1 {
			value = "m.Type"
		}
		fmt.Fprintf(b, "\n// %[1]sType implements %[1]s.\nfunc (m *%[2]s) %[1]sType() %[1]sType { return %[3]s }\n", s.kind, l.name, value)
		fmt.Fprintln(&s.code, "c.closeAligned(s)")
	}
	if s.code.Len() > 0 || len(l.parts) == 0 {
		fmt.Fprintf(b, "\nfunc (m *%s) code(c *coder) {\n%s}\n", l.name, &s.code)
	}
	return s.kind, s.variant, nil
}

// add writes one part.
func (s *structure) add(p part) error {
	w := p.words
	put := func(format string, args ...any) { fmt.Fprintf(&s.code, format+"\n", args...) }
	switch {
	case w[0] == "embed" && len(w) == 2: // whose method code is this structure's
		fmt.Fprintln(&s.fields, w[1])
	case w[0] == "pad" && len(w) == 2:
		put("c.pad(%s)", w[1])
	case w[0] == "open" && len(w) == 2:
		put("s := c.open(%q)", w[1])
	case w[0] == "length" && len(w) == 1:
		put("c.length(&s)")
	case w[0] == "close" && len(w) == 1:
		put("c.close(s)")
	case w[0] == "close" && len(w) == 2 && w[1] == "aligned":
		put("c.closeAligned(s)")
	case w[0] == "align" && len(w) == 1:
		put("c.padTo8(s.start)")
	case (w[0] == "action" || w[0] == "instruction") && len(w) > 2:
		s.kind, s.variant = goName(w[0]), &variant{values: w[2:]}
		value := w[2]
		if len(w) > 3 {
			value = "m.Type"
			fmt.Fprintf(&s.fields, "Type %sType\n", s.kind)
		}
		put("s := c.open(%q)\nconstant16(c, \"type\", %s)\nc.length(&s)", w[1], value)
	case w[0] == "switch" && len(w) == 2:
		put("switch m.%s {", w[1])
		s.fallback = fmt.Sprintf("default:\nc.fail(fmt.Errorf(\"%s %%v: %%w\", m.%s, ErrUnsupported))\n", strings.ToLower(w[1]), w[1])
	case w[0] == "case" && len(w) > 1:
		put("case %s:", strings.Join(w[1:], ", "))
	case w[0] == "default" && len(w) == 1:
		put("default:")
		s.fallback = ""
	case w[0] == "end" && len(w) == 1:
		put("%s}", s.fallback)
	default:
		return s.field(p, put)
	}
	return nil
}

// field writes a part that is a field.
func (s *structure) field(p part, put func(string, ...any)) error {
	w := p.words
	if len(w) < 2 {
		return fmt.Errorf("%q is no part", strings.Join(w, " "))
	}
	name, argument := goName(w[0]), strings.Join(w[2:], " ")
	kind := map[string]string{
		"u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "array": "[" + argument + "]uint32", "u8s": "[]byte", "u32s": "[]uint32",
		"data": "[]byte", "text": "string", "mac": "MAC", "object": argument, "list": "[]" + argument,
		"actions": "[]Action", "sizedActions": "[]Action", "instructions": "[]Instruction",
	}[w[1]]
	switch w[1] {
	case "u8", "u16", "u32", "u64":
		if argument != "" {
			kind = argument
		}
		put("%s(c, %q, &m.%s)", w[1], w[0], name)
	case "array":
		put("numbers32(c, %q, m.%s[:])", w[0], name)
	case "u8s", "data", "mac":
		put("c.%s(%q, &m.%s)", w[1], w[0], name)
	case "text":
		put("c.text(%q, %s, &m.%s)", w[0], argument, name)
	case "u32s", "object":
		put("%s(c, %q, &m.%s)", w[1], w[0], name)
	case "list":
		put("structs(c, %q, &m.%s)", w[0], name)
	case "actions", "sizedActions", "instructions":
		put("c.%s(&m.%s)", w[1], name)
	default:
		return fmt.Errorf("%q is no kind of field", w[1])
	}
	fmt.Fprintf(&s.fields, "%s %s %s\n", name, kind, p.comment)
	return nil
}
