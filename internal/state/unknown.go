package state

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// unknownFields are the names in a JSON object that a type has no field for, where they
// are, such as "containers.counted.marked_packets": a Weir that came later wrote them.
func unknownFields(data []byte, t reflect.Type) []string {
	var value any
	if json.Unmarshal(data, &value) != nil {
		return nil
	}
	var found []string
	walkUnknown(value, t, "", func(path string) {
		if !slices.Contains(found, path) {
			found = append(found, path)
		}
	})
	slices.Sort(found)
	return found
}

func walkUnknown(value any, t reflect.Type, path string, found func(path string)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			if t.Kind() == reflect.Slice {
				walkUnknown(element, t.Elem(), path, found)
			}
		}
	case map[string]any:
		for name, inside := range value {
			switch field, known := fieldNamed(t, name); {
			case t.Kind() == reflect.Map:
				walkUnknown(inside, t.Elem(), path, found)
			case known:
				walkUnknown(inside, field, join(path, name), found)
			case t.Kind() == reflect.Struct:
				found(join(path, name))
			}
		}
	}
}

// fieldNamed is the type of the field of a struct that JSON reads a name into.
func fieldNamed(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if strings.EqualFold(tag, name) {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
