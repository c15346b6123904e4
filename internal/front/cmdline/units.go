package cmdline

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-project/weir/internal/share/policy"
)

// LatencyOrDash formats a latency bound, or a dash for none.
func LatencyOrDash(ms float64) string {
	if ms == 0 {
		return "-"
	}
	return FormatMS(ms)
}

// DelayOrDash formats the median and 99th percentile of a delay, or a dash for none.
func DelayOrDash(p50MS, p99MS float64) string {
	if p99MS == 0 {
		return "-"
	}
	return strings.TrimSuffix(FormatMS(p50MS), "ms") + "/" + FormatMS(p99MS)
}

// FormatMS formats milliseconds with two significant digits.
func FormatMS(ms float64) string {
	digits := 0
	switch {
	case ms < 1:
		digits = 2
	case ms < 10:
		digits = 1
	}
	return strconv.FormatFloat(ms, 'f', digits, 64) + "ms"
}

// RateOrDash formats a rate, or a dash for none.
func RateOrDash(bps uint64) string {
	if bps == 0 {
		return "-"
	}
	return policy.FormatRateShort(bps)
}

// BytesOrDash formats a number of bytes, or a dash for none.
func BytesOrDash(bytes uint64) string {
	switch {
	case bytes == 0:
		return "-"
	case bytes < 10_000:
		return fmt.Sprintf("%dB", bytes)
	case bytes < 10_000_000:
		return fmt.Sprintf("%dkB", bytes/1000)
	default:
		return fmt.Sprintf("%dMB", bytes/1_000_000)
	}
}

// FormatAgo formats the time since an event.
func FormatAgo(d time.Duration) string {
	if d < time.Second {
		return "now"
	}
	return d.Truncate(time.Second).String()
}
