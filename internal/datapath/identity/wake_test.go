package identity

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf/ringbuf"
)

// TestForward: records become one wake-up while none is read, an error is the last value, and a closed reader is
// no error.
func TestForward(t *testing.T) {
	broken := errors.New("broken")
	for last, want := range map[error]error{broken: broken, ringbuf.ErrClosed: nil} {
		woken, read := make(chan error, 1), make(chan error)
		go forward(func() error { return <-read }, woken)
		read <- nil
		read <- nil
		read <- nil // the second is forwarded, or was dropped
		if err, open := <-woken; err != nil || !open {
			t.Fatalf("%v: a record is %v, open %t", last, err, open)
		}
		read <- last
		var got error
		for err := range woken {
			got = err
		}
		if !errors.Is(got, want) {
			t.Errorf("the reader ended with %v, the channel with %v", last, got)
		}
	}
}
