package identity

// Applied is one setting of the kernel: the last requested value, and the error if the kernel
// refused it. The zero value was never requested.
type Applied[T comparable] struct {
	told   bool
	wanted T
	err    error
}

// Apply calls set unless want is in force already. It retries a value that was refused.
func (a *Applied[T]) Apply(want T, set func() error) error {
	if a.InForce(want) {
		return nil
	}
	a.err = set()
	a.told, a.wanted = true, want
	return a.err
}

// InForce reports whether the kernel accepted want last.
func (a *Applied[T]) InForce(want T) bool { return a.told && a.err == nil && a.wanted == want }

// Refused reports whether the kernel refused want last.
func (a *Applied[T]) Refused(want T) bool { return a.told && a.err != nil && a.wanted == want }

// Err returns the kernel's refusal of the last request, or nil.
func (a *Applied[T]) Err() error { return a.err }

// Told reports whether a value was requested.
func (a *Applied[T]) Told() bool { return a.told }

// Recheck makes the next Apply call set, because another program may have changed the setting.
func (a *Applied[T]) Recheck() { a.told = false }
