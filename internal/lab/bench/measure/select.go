package measure

import "slices"

// Find returns the first element that matches, in the list; nil without one.
func Find[T any](list []T, matches func(T) bool) *T {
	if i := slices.IndexFunc(list, matches); i >= 0 {
		return &list[i]
	}
	return nil
}

// Distinct returns the values of a field of a list, each once, in their order.
func Distinct[T any, V comparable](list []T, field func(T) V) []V {
	var values []V
	for _, one := range list {
		if value := field(one); !slices.Contains(values, value) {
			values = append(values, value)
		}
	}
	return values
}
