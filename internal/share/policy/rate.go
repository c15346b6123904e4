package policy

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// MaxRateBPS is the highest rate that can be written, one petabit per second. It
// keeps every rate exact in JSON, whose numbers are often read as 64-bit floats.
const MaxRateBPS = 1_000_000_000_000_000

// minPlainBPS is the lowest rate accepted without a unit: one full Ethernet frame of 1514
// bytes per second. A lower number nearly always lacks its unit and would cut a host off.
// "95bit" expresses it explicitly.
const minPlainBPS = 1514 * 8

// maxRateLength exceeds the length of every exact rate up to MaxRateBPS.
const maxRateLength = 40

// tcUnits are tc's units of bits per second (tc(8), section UNITS), which it
// reads in any case. A number without a unit is bits per second, too, from
// minPlainBPS on.
var tcUnits = map[string]int64{
	"": 1, "bit": 1,
	"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12,
	"kibit": 1 << 10, "mibit": 1 << 20, "gibit": 1 << 30, "tibit": 1 << 40,
}

// kubernetesUnits are the suffixes of Kubernetes quantities. Their case counts:
// M is a million, m is a thousandth.
var kubernetesUnits = map[string]int64{
	"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
}

// ParseRate reads a rate and returns it in bits per second: at least 1, at most
// [MaxRateBPS]. It takes tc's spelling in any case ("30mbit", "1.5gbit",
// "512kibit", "100000") and Kubernetes quantities ("30M", "1.5G", "512Ki"), both
// of which count bits here. A number without a unit is refused if it is less than
// a frame a second, and so is zero: to have no rate is to write none. A fraction of a bit is dropped. Units of bytes, in
// any spelling, are refused.
func ParseRate(text string) (uint64, error) {
	if text == "" {
		return 0, errEmpty
	}
	if len(text) > maxRateLength {
		return 0, fmt.Errorf("is longer than %d characters; write for example 30mbit", maxRateLength)
	}
	switch text[0] {
	case '-':
		return 0, errors.New("is negative; write for example 30mbit")
	case '+':
		return 0, errors.New("has a sign; write it without")
	}
	if strings.ContainsFunc(text, unicode.IsSpace) {
		return 0, errors.New("contains white space; write number and unit together, for example 30mbit")
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if end < 0 {
		end = len(text)
	}
	number, unit := text[:end], text[end:]
	if !isDecimal(number) {
		return 0, errors.New("is not a rate; write a number and a unit, for example 30mbit")
	}
	factor, ok := kubernetesUnits[unit]
	if !ok {
		factor, ok = tcUnits[strings.ToLower(unit)]
	}
	if !ok {
		return 0, unitError(number, unit)
	}

	value, _ := new(big.Rat).SetString(number)
	value.Mul(value, new(big.Rat).SetInt64(factor))
	whole := new(big.Int).Quo(value.Num(), value.Denom())
	switch {
	case !whole.IsUint64() || whole.Uint64() > MaxRateBPS:
		return 0, fmt.Errorf("is too high; the highest rate is %s", FormatRate(MaxRateBPS))
	case whole.Sign() == 0 && value.Sign() == 0:
		return 0, errors.New("is zero; write a rate above 0, or remove it")
	case unit == "" && whole.Uint64() < minPlainBPS:
		return 0, plainError(number, whole.Uint64())
	case whole.Sign() == 0:
		return 0, errors.New("is less than one bit per second; write for example 30mbit")
	}
	return whole.Uint64(), nil
}

// plainError explains a number too low to be bits per second, and suggests a rate.
func plainError(number string, bps uint64) error {
	meant := number + "mbit"
	if bps >= 1000 {
		meant = number + "kbit"
	}
	return fmt.Errorf("is %d bit/s, not even a frame a second; did you mean %s?", bps, meant)
}

// isDecimal reports whether text is digits with at most one decimal point between digits.
func isDecimal(text string) bool {
	whole, fraction, point := strings.Cut(text, ".")
	return isDigits(whole) && (!point || isDigits(fraction))
}

func isDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}

// unitError explains an unknown unit and suggests one.
func unitError(number, unit string) error {
	lower := strings.ToLower(unit)
	meant := number + "mbit"
	if prefix := lower[:1]; strings.Contains("kmgt", prefix) {
		meant = number + prefix + "bit"
	}
	switch {
	case unit == "m":
		return fmt.Errorf("has the unit m, which means a thousandth in Kubernetes; write %sM or %smbit", number, number)
	case strings.HasPrefix(lower, "e") && isDigits(strings.TrimLeft(lower[1:], "+-")):
		return errors.New("has an exponent, which is not accepted; write for example 30mbit")
	case unit[0] == ',':
		return errors.New("has a comma; fractions are written with a point, for example 1.5mbit")
	case strings.HasSuffix(lower, "bps"):
		return fmt.Errorf("has the unit %q, which tc takes for bytes: bytes are not accepted; for %s write %s", unit, inWords(meant, number), meant)
	case isBytes(lower) && strings.Contains(unit, "b") && !strings.Contains(lower, "byte"):
		return fmt.Errorf("has the unit %q, which some programs take for bytes: bytes are not accepted; for %s write %s", unit, inWords(meant, number), meant)
	case isBytes(lower):
		return fmt.Errorf("has the unit %q: bytes are not accepted; for %s write %s", unit, inWords(meant, number), meant)
	}
	return fmt.Errorf("has the unknown unit %q; write bit, kbit, mbit, gbit or tbit, for example %s", unit, meant)
}

// inWords returns "30 megabit" for "30mbit".
func inWords(meant, number string) string {
	names := map[string]string{"kbit": "kilobit", "mbit": "megabit", "gbit": "gigabit", "tbit": "terabit"}
	return number + " " + names[strings.TrimPrefix(meant, number)]
}

// isBytes reports whether a lower-case unit means bytes or may mean bytes: tc's "bps",
// "kbps" and "mibps" are bytes per second; "MB", "Mb/s" and "MBytes" are ambiguous.
func isBytes(lower string) bool {
	rest := strings.TrimPrefix(strings.TrimLeft(lower[:1], "kmgtp")+lower[1:], "i")
	switch rest {
	case "b", "b/s", "bps":
		return true
	}
	return strings.HasPrefix(rest, "byte")
}

// FormatRate returns the shortest exact spelling of a rate in bits per second for
// [ParseRate] and tc: "30mbit", "1.5gbit", "16666667bit". Among equally short spellings the
// larger unit wins. Zero is "0bit", which ParseRate refuses.
func FormatRate(bps uint64) string {
	digits := strconv.FormatUint(bps, 10)
	shortest := ""
	for _, unit := range rateUnits {
		if len(digits) <= unit.zeros {
			continue
		}
		if text := unit.spell(digits); shortest == "" || len(text) < len(shortest) {
			shortest = text
		}
	}
	return shortest
}

// FormatRateShort returns a rate for people with at most three digits, rounded to nearest:
// "16.7mbit", "100mbit", "999bit".
func FormatRateShort(bps uint64) string {
	step := thirdDigit(bps)
	count := bps / step
	if rest := bps % step; rest >= step-rest {
		count++
	}
	digits := strconv.FormatUint(count*step, 10)
	largest := slices.IndexFunc(rateUnits, func(u rateUnit) bool { return len(digits) > u.zeros })
	return rateUnits[largest].spell(digits)
}

// FormatRateWithin is FormatRateShort rounded down, for the highest rate that users may
// request.
func FormatRateWithin(bps uint64) string { return FormatRateShort(bps - bps%thirdDigit(bps)) }

// thirdDigit returns the value of a number's third digit.
func thirdDigit(bps uint64) uint64 {
	step := uint64(1)
	for bps/step >= 1000 {
		step *= 10
	}
	return step
}

// rateUnit is a unit of 10^zeros bits per second.
type rateUnit struct {
	name  string
	zeros int
}

// rateUnits are the units for printing rates, largest first.
var rateUnits = []rateUnit{{"tbit", 12}, {"gbit", 9}, {"mbit", 6}, {"kbit", 3}, {"bit", 0}}

// spell writes a decimal number of bits per second in the unit. The number must have more
// digits than the unit has zeros.
func (u rateUnit) spell(digits string) string {
	point := len(digits) - u.zeros
	if fraction := strings.TrimRight(digits[point:], "0"); fraction != "" {
		return digits[:point] + "." + fraction + u.name
	}
	return digits[:point] + u.name
}
