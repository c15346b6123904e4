package controller

import (
	"testing"
	"time"
	"unsafe"
)

// TestClockIsSet: a switch is not taken for silent, nor for alive, because
// somebody set the clock. The seconds of the wall clock are bits 30 to 62 of the
// first word of a time.Time that has a monotonic reading.
func TestClockIsSet(t *testing.T) {
	for _, step := range []int64{-3600, 3600} {
		s := &conn{}
		now := time.Now()
		stepped := now
		*(*uint64)(unsafe.Pointer(&stepped)) += uint64(step << 30)
		if stepped.Sub(now) != 0 || stepped.Unix()-now.Unix() != step {
			t.Fatal("time.Time is not made as it was")
		}
		s.hear(stepped)
		if silent := s.silentFor(now.Add(time.Second)); silent != time.Second {
			t.Errorf("clock set by %d s: silent for %v", step, silent)
		}
	}
}
