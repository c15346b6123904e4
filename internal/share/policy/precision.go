package policy

import (
	"fmt"
	"time"

	v1 "github.com/weir-project/weir/api/v1"
)

// ParsePrecision parses an uplink's precision. Errors: other words.
func ParsePrecision(text string) (v1.Precision, error) {
	p := v1.Precision(text)
	switch p {
	case v1.PrecisionExact, v1.PrecisionBalanced, v1.PrecisionLow:
		return p, nil
	}
	return "", fmt.Errorf("must be %s, %s or %s", v1.PrecisionExact, v1.PrecisionBalanced, v1.PrecisionLow)
}

// PacketTime returns how long one packet may hold an uplink; 0 for what package sched does by itself,
// 0.25 ms. With more than that of balanced, TCP
// needs more than 50 ms to adapt to a new share, because one packet is too large a part of its
// window. That of low is a 64 KB packet at 100 Mbit/s: the kernel makes no larger ones.
func PacketTime(p v1.Precision) time.Duration {
	switch p {
	case v1.PrecisionBalanced:
		return 500 * time.Microsecond
	case v1.PrecisionLow:
		return 5250 * time.Microsecond
	}
	return 0
}
