package measure

import "fmt"

// Cells of tables.

// Mbps formats a rate in bits per second as Mbit/s.
func Mbps(bps float64) string { return fmt.Sprintf("%.2f", bps/1e6) }

// MS formats milliseconds.
func MS(value float64) string { return fmt.Sprintf("%.3g", value) }

// Optional formats a value that may be missing.
func Optional(value *float64, format func(float64) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}

// Percent formats a fraction in percent, to a tenth.
func Percent(fraction float64) string { return fmt.Sprintf("%.1f %%", fraction*100) }

// FinePercent formats a fraction in percent, to a hundredth.
func FinePercent(fraction float64) string { return fmt.Sprintf("%.2f %%", fraction*100) }

// SignedPercent formats a fraction in percent, to a hundredth, with its sign.
func SignedPercent(fraction float64) string { return fmt.Sprintf("%+.2f %%", fraction*100) }

// SpreadText returns "least .. most"; empty if both are equal.
func SpreadText(s Spread, format func(float64) string) string {
	if s.Min == s.Max {
		return ""
	}
	return format(s.Min) + " .. " + format(s.Max)
}
