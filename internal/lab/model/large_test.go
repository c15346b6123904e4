//go:build !race

// With the race detector this takes minutes, and there is nothing for it to find.

package model

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// TestLarge: 50 places a queue, 780,302 states, are solved with less than 1 GB. It takes about
// 5 s of a processor (docs/model.md); a minute of it is what no machine that is only slow needs.
func TestLarge(t *testing.T) {
	p := paperPort(t, func(l *LLQ) { l.Places = [3]int{50, 50, 50} })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := processorTime(t)
	r := solve(t, p)
	took := processorTime(t) - began
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d states: %v of a processor, %d MB", r.States, took, allocated>>20)
	if want := 3*2*50*51*51 + 2; r.States != want {
		t.Errorf("%d states, want %d", r.States, want)
	}
	if allocated > 1e9 {
		t.Errorf("%d bytes were allocated", allocated)
	}
	if took > time.Minute {
		t.Errorf("it took %v of a processor", took)
	}
	if r.Residual > tolerance {
		t.Errorf("%g of the flow does not balance", r.Residual)
	}
	for q, queue := range r.Queues {
		near(t, QueueNames[q]+"'s throughput", queue.ThroughputPPS, p.ArrivalPPS[q]*(1-queue.Loss), 1e-6)
	}
}

// processorTime is what this process has taken of the processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
