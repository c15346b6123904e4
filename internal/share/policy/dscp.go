package policy

import (
	"fmt"
	"strings"

	v1 "github.com/weir-project/weir/api/v1"
)

// Mark is a code point of the DSCP field (RFC 2474) that asks for a traffic class.
type Mark struct {
	DSCP  uint8
	Name  string
	Class v1.Class
}

// marks are the code points of RFC 4594 and RFC 8622 that ask for a class; bpf/dscp.h has the
// same. All others ask for none.
var marks = []Mark{
	{46, "EF", v1.ClassEF}, {44, "VOICE-ADMIT", v1.ClassEF}, {40, "CS5", v1.ClassEF}, {48, "CS6", v1.ClassEF}, {56, "CS7", v1.ClassEF},
	{34, "AF41", v1.ClassAF}, {36, "AF42", v1.ClassAF}, {38, "AF43", v1.ClassAF}, {26, "AF31", v1.ClassAF}, {28, "AF32", v1.ClassAF},
	{30, "AF33", v1.ClassAF}, {18, "AF21", v1.ClassAF}, {20, "AF22", v1.ClassAF}, {22, "AF23", v1.ClassAF}, {10, "AF11", v1.ClassAF},
	{12, "AF12", v1.ClassAF}, {14, "AF13", v1.ClassAF}, {32, "CS4", v1.ClassAF}, {24, "CS3", v1.ClassAF}, {16, "CS2", v1.ClassAF},
	{8, "CS1", v1.ClassBE}, {1, "LE", v1.ClassBE},
}

// Marks returns the code points that ask for a class, those of EF first. The caller must not change
// them.
func Marks() []Mark { return marks }

// MarkOf returns the code point that packets of a class are given.
func MarkOf(class v1.Class) uint8 {
	switch class {
	case v1.ClassEF:
		return 46
	case v1.ClassAF:
		return 26
	}
	return 0
}

// FormatMarks returns the code points that ask for a class, such as "CS1 (8), LE (1)".
func FormatMarks(class v1.Class) string {
	var names []string
	for _, m := range marks {
		if m.Class == class {
			names = append(names, fmt.Sprintf("%s (%d)", m.Name, m.DSCP))
		}
	}
	return strings.Join(names, ", ")
}
