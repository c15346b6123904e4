package identity

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// Await arms the classifier: the next packet that is not control traffic causes one of Origins.Wakeups.
func (u *Uplink) Await() error {
	return u.globals.set(uplinkVarWakeNs, binary.NativeEndian.AppendUint64(nil, uint64(uplinkWeirWakeWEIR_WAKE_ARMED)))
}

// AwaitedAt returns when the packet came that the last Await was for; the zero time if none has come.
func (u *Uplink) AwaitedAt() (time.Time, error) {
	value, err := u.globals.get(uplinkVarWakeNs)
	if err != nil {
		return time.Time{}, err
	}
	at := binary.NativeEndian.Uint64(value)
	if at <= uint64(uplinkWeirWakeWEIR_WAKE_ARMED) {
		return time.Time{}, nil
	}
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock); err != nil {
		return time.Time{}, fmt.Errorf("read the clock of the classifier: %w", err)
	}
	return time.Now().Add(time.Duration(int64(at) - clock.Nano())), nil
}

// Wakeups returns a channel that has a value after packets at uplinks for which Await was called. It
// ends with Close.
func (o *Origins) Wakeups() (<-chan struct{}, error) {
	reader, err := ringbuf.NewReader(o.wakeups)
	if err != nil {
		return nil, fmt.Errorf("read the classifiers' wake-ups: %w", err)
	}
	o.waker = reader
	woken := make(chan struct{}, 1)
	go func() {
		var record ringbuf.Record
		for reader.ReadInto(&record) == nil {
			select {
			case woken <- struct{}{}:
			default: // one is waiting
			}
		}
	}()
	return woken, nil
}
