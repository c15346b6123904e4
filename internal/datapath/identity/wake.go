package identity

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// ArmWakeup arms the classifier: the next packet that is not control traffic causes one of Origins.Wakeups.
func (u *Uplink) ArmWakeup() error {
	if err := u.globals.wake.Update(uint32(0), uint64(uplinkWeirWakeWEIR_WAKE_ARMED), ebpf.UpdateExist); err != nil {
		return fmt.Errorf("arm the classifier's wake-up: %w", err)
	}
	return nil
}

// WokenAt returns when the packet came that the last ArmWakeup was for; the zero time if none has come.
func (u *Uplink) WokenAt() (time.Time, error) {
	var at uint64
	if err := u.globals.wake.Lookup(uint32(0), &at); err != nil {
		return time.Time{}, fmt.Errorf("read the classifier's wake-up: %w", err)
	}
	if at <= uint64(uplinkWeirWakeWEIR_WAKE_ARMED) {
		return time.Time{}, nil
	}
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock); err != nil {
		return time.Time{}, fmt.Errorf("read the clock of the classifier: %w", err)
	}
	return time.Now().Add(time.Duration(int64(at) - clock.Nano())), nil
}

// Wakeups returns a channel that has nil after packets at uplinks for which ArmWakeup was called. If the ring of
// wake-ups cannot be read any more, the last value is that error. The channel ends with Close.
func (o *Origins) Wakeups() (<-chan error, error) {
	reader, err := ringbuf.NewReader(o.wakeups)
	if err != nil {
		return nil, fmt.Errorf("read the classifiers' wake-ups: %w", err)
	}
	o.waker = reader
	woken := make(chan error, 1)
	var record ringbuf.Record
	go forward(func() error { return reader.ReadInto(&record) }, woken)
	return woken, nil
}

// forward sends nil for each record that read returns, unless one is waiting, and closes the channel after the
// first error. It sends that error, unless the reader was closed.
func forward(read func() error, woken chan<- error) {
	defer close(woken)
	for {
		err := read()
		switch {
		case errors.Is(err, ringbuf.ErrClosed):
			return
		case err != nil:
			woken <- fmt.Errorf("read the classifiers' wake-ups: %w", err)
			return
		}
		select {
		case woken <- nil:
		default: // one is waiting
		}
	}
}
