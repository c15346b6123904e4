package must

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

// Keep packs a random value of a type, none of whose fields is zero, and unpacks it: all of it has to be there.
func Keep[T any](tb testing.TB, pack func(any) ([]byte, error), unpack func([]byte, any) error) {
	tb.Helper()
	var want, got T
	fill(tb, reflect.ValueOf(&want).Elem())
	packed, err := pack(want)
	Succeed(tb, err)
	if Succeed(tb, unpack(packed, &got)); !reflect.DeepEqual(got, want) {
		tb.Errorf("got %+v, want %+v", got, want)
	}
}

// Reread returns a value as it is read from the JSON that it is written as.
func Reread[T any](tb testing.TB, value T, parse func([]byte, *T) error) (read T) {
	tb.Helper()
	text, err := json.Marshal(value)
	Succeed(tb, err)
	Succeed(tb, parse(text, &read))
	return read
}

// fill sets a value, and all that is in it, to random values that are not zero. A field that is not exported ends the test: what is
// written as JSON would lack it.
func fill(tb testing.TB, value reflect.Value) {
	tb.Helper()
	switch kind := value.Kind(); {
	case value.CanInt():
		value.SetInt(1 + rand.Int64N(100))
	case value.CanUint():
		value.SetUint(1 + rand.Uint64N(100))
	case value.CanFloat():
		value.SetFloat(1 + rand.Float64())
	case kind == reflect.Bool:
		value.SetBool(true)
	case kind == reflect.String:
		value.SetString("some text")
	case kind == reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(tb, value.Elem())
	case kind == reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 2, 2))
		fallthrough
	case kind == reflect.Array:
		for i := range value.Len() {
			fill(tb, value.Index(i))
		}
	case kind == reflect.Struct:
		for i := range value.NumField() {
			if field := value.Type().Field(i); !field.IsExported() {
				tb.Fatalf("field %s of %s is not exported", field.Name, value.Type())
			}
			fill(tb, value.Field(i))
		}
	default:
		tb.Fatalf("no values for %s", value.Type())
	}
}
