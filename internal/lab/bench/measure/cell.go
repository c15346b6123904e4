package measure

import "fmt"

// Cells of tables.

// Mbps is a rate, of bits per second, in Mbit/s.
func Mbps(bps float64) string { return fmt.Sprintf("%.2f", bps/1e6) }

// MS is a number of milliseconds.
func MS(value float64) string { return fmt.Sprintf("%.3g", value) }

// Optional is a value that may be missing.
func Optional(value *float64, format func(float64) string) string {
	if value == nil {
		return "-"
	}
	return format(*value)
}

// Percent is a fraction in percent, to a tenth.
func Percent(fraction float64) string { return fmt.Sprintf("%.1f %%", fraction*100) }

// FinePercent is the same to a hundredth.
func FinePercent(fraction float64) string { return fmt.Sprintf("%.2f %%", fraction*100) }

// SignedPercent is the same with its sign.
func SignedPercent(fraction float64) string { return fmt.Sprintf("%+.2f %%", fraction*100) }

// SpreadText is "least .. most", or nothing where it says nothing.
func SpreadText(s Spread, format func(float64) string) string {
	if s.Min == s.Max {
		return ""
	}
	return format(s.Min) + " .. " + format(s.Max)
}
