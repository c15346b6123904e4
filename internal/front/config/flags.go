package config

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/goccy/go-yaml/ast"
)

// SDNPath is where weir sdn run looks for its configuration.
const SDNPath = "/etc/weir/sdn.yaml"

// LoadFlags reads a file whose keys are options of a command, and gives each value to set: a value or an item of
// a list without a key, what is in a map with its key there, which may be a list again. Errors, those of set
// among them, have their line.
func LoadFlags(path string, options []string, set func(option, key, text string) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	r := reader{file: path}
	if root, ok := r.parse(data); ok {
		given := root.fields(options...)
		for _, option := range slices.Sorted(maps.Keys(given)) {
			given[option].each("", func(key, text string) error { return set(option, key, text) })
		}
	}
	return r.err()
}

// each gives set the values below v, which is at a key of a map, or at none.
func (v value) each(key string, set func(key, text string) error) {
	switch v.node.(type) {
	case *ast.SequenceNode:
		for _, item := range v.items() {
			item.each(key, set)
		}
	case *ast.MappingNode:
		if key != "" {
			v.fail("is a map in a map; write a value, or a list of them")
			return
		}
		fields := v.fields()
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			fields[name].each(name, set)
		}
	default:
		var none struct{}
		read(v, &none, func(text string) (struct{}, error) { return none, set(key, text) })
	}
}
