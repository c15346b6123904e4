package policy_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weir-project/weir/internal/share/policy"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]uint64{
		// tc's spelling, in any case.
		"30mbit": 30_000_000, "500kbit": 500_000, "1.5gbit": 1_500_000_000,
		"1bit": 1, "8BIT": 8, "30Mbit": 30_000_000, "30MBIT": 30_000_000, "1tbit": 1_000_000_000_000,
		"2.5gbit": 2_500_000_000, "1kibit": 1024, "1.5MiBit": 1_572_864, "1gibit": 1 << 30, "1tibit": 1 << 40,
		// Kubernetes quantities.
		"30M": 30_000_000, "500k": 500_000, "1.5G": 1_500_000_000, "1T": 1_000_000_000_000, "1P": policy.MaxRateBPS,
		"1Ki": 1024, "1Mi": 1 << 20, "1.5Gi": 3 << 29, "1Ti": 1 << 40, "1000000": 1_000_000, "12112": 12_112,
		// Fractions of a bit are dropped, and no digit before that is.
		"1.9bit": 1, "0.3333mbit": 333_300, "0.3333333mbit": 333_333,
		"999999999999999.999": 999_999_999_999_999, "0000030mbit": 30_000_000, "30.000mbit": 30_000_000,
		"1000tbit": policy.MaxRateBPS,
	} {
		if got, err := policy.ParseRate(text); err != nil || got != want {
			t.Errorf("ParseRate(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestParseRateRefuses(t *testing.T) {
	const bytes = "bytes are not accepted"
	for text, want := range map[string]string{
		"":                             "is empty",
		" ":                            "white space",
		"30 mbit":                      "white space",
		"30mbit\n":                     "white space",
		"30\u00a0mbit":                 "white space",
		"-30mbit":                      "is negative",
		"+30mbit":                      "has a sign",
		"0":                            "is zero",
		"0mbit":                        "is zero",
		"0.000gbit":                    "is zero",
		"95":                           "is 95 bit/s, not even a frame a second; did you mean 95mbit?",
		"1":                            "did you mean 1mbit?",
		"2.5":                          "is 2 bit/s, not even a frame a second; did you mean 2.5mbit?",
		"0.5":                          "did you mean 0.5mbit?",
		"999":                          "did you mean 999mbit?",
		"1000":                         "did you mean 1000kbit?",
		"12111":                        "did you mean 12111kbit?",
		"00":                           "is zero",
		"0.5bit":                       "less than one bit per second",
		"NaN":                          "is not a rate",
		"inf":                          "is not a rate",
		"Infinity":                     "is not a rate",
		"mbit":                         "is not a rate",
		"fast":                         "is not a rate",
		".5gbit":                       "is not a rate",
		"5.gbit":                       "is not a rate",
		"1.2.3gbit":                    "is not a rate",
		"1,5gbit":                      "has a comma; fractions are written with a point",
		"٣٠mbit":                       "is not a rate",
		"\uff13\uff10mbit":             "is not a rate", // full-width digits
		"0x10":                         `has the unknown unit "x10"`,
		"1e6":                          "has an exponent, which is not accepted",
		"1E+6":                         "has an exponent, which is not accepted",
		"30m":                          "write 30M or 30mbit",
		"30MB":                         bytes + "; for 30 megabit write 30mbit",
		"30mbps":                       bytes + "; for 30 megabit write 30mbit",
		"30kbps":                       "which tc takes for bytes: " + bytes + "; for 30 kilobit write 30kbit",
		"1.5Gb/s":                      `has the unit "Gb/s", which some programs take for bytes: ` + bytes + "; for 1.5 gigabit write 1.5gbit",
		"10Mb":                         `has the unit "Mb", which some programs take for bytes: ` + bytes + "; for 10 megabit write 10mbit",
		"10MB":                         `has the unit "MB": ` + bytes,
		"1TB":                          bytes + "; for 1 terabit write 1tbit",
		"30MiB":                        bytes + "; for 30 megabit write 30mbit",
		"30mibps":                      bytes,
		"30bps":                        bytes + "; for 30 megabit write 30mbit",
		"30B":                          bytes,
		"30bytes":                      bytes,
		"30megabytes":                  `has the unknown unit "megabytes"`,
		"30kbytes":                     bytes + "; for 30 kilobit write 30kbit",
		"30K":                          `has the unknown unit "K"; write bit, kbit, mbit, gbit or tbit, for example 30kbit`,
		"30mbit/s":                     "for example 30mbit",
		"30xyz":                        `has the unknown unit "xyz"`,
		"30µbit":                       `has the unknown unit "µbit"`,
		"1001tbit":                     "is too high; the highest rate is 1000tbit",
		"18446744073709551616":         "is too high",
		strings.Repeat("9", 40):        "is too high",
		strings.Repeat("9", 41):        "is longer than 40 characters",
		"0." + strings.Repeat("0", 39): "is longer than 40 characters",
	} {
		got, err := policy.ParseRate(text)
		if err == nil || !strings.Contains(err.Error(), want) || got != 0 {
			t.Errorf("ParseRate(%q) = %d, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestFormatRate(t *testing.T) {
	for bps, want := range map[uint64]string{
		0: "0bit", 1: "1bit", 999: "999bit", 1000: "1kbit", 1100: "1.1kbit", 1234: "1234bit",
		30_000_000: "30mbit", 500_000: "500kbit", 1_500_000: "1.5mbit", 1_500_000_000: "1.5gbit",
		16_666_667: "16666667bit", 16_666_000: "16666kbit", 16_660_000: "16.66mbit",
		100_000_000: "100mbit", 1_000_000_000_000: "1tbit", policy.MaxRateBPS: "1000tbit",
		math.MaxUint64: "18446744073709551615bit",
	} {
		if got := policy.FormatRate(bps); got != want {
			t.Errorf("FormatRate(%d) = %q; want %q", bps, got, want)
		}
	}
}

func TestFormatRateShort(t *testing.T) {
	for bps, want := range map[uint64]string{
		0: "0bit", 1: "1bit", 999: "999bit", 1000: "1kbit", 1004: "1kbit", 1005: "1.01kbit",
		12_345: "12.3kbit", 12_350: "12.4kbit", 16_666_667: "16.7mbit", 33_333_333: "33.3mbit",
		100_000_000: "100mbit", 30_000_000: "30mbit", 999_499: "999kbit", 999_500: "1mbit",
		9_999_999: "10mbit", 1_500_000_000: "1.5gbit", policy.MaxRateBPS: "1000tbit",
		math.MaxUint64: "18400000tbit",
	} {
		if got := policy.FormatRateShort(bps); got != want {
			t.Errorf("FormatRateShort(%d) = %q; want %q", bps, got, want)
		}
	}
}

// rates draws rates of every magnitude, round ones more often than not.
var rates = rapid.Custom(func(t *rapid.T) uint64 {
	step := uint64(math.Pow10(rapid.IntRange(0, 15).Draw(t, "zeros")))
	return step * rapid.Uint64Range(1, policy.MaxRateBPS/step).Draw(t, "count")
})

func TestFormatRateRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bps := rates.Draw(t, "bps")
		text := policy.FormatRate(bps)
		if got, err := policy.ParseRate(text); err != nil || got != bps {
			t.Fatalf("ParseRate(FormatRate(%d) = %q) = %d, %v", bps, text, got, err)
		}
		if upper, err := policy.ParseRate(strings.ToUpper(text)); err != nil || upper != bps {
			t.Fatalf("ParseRate of %q in upper case = %d, %v; want %d", text, upper, err, bps)
		}
	})
}

// What may be asked for at most is not rounded up to more than that.
func TestFormatRateWithin(t *testing.T) {
	for bps, want := range map[uint64]string{
		0: "0bit", 999: "999bit", 1999: "1.99kbit", 66_699_999: "66.6mbit", 94_950_000: "94.9mbit", 95e6: "95mbit",
	} {
		if got := policy.FormatRateWithin(bps); got != want {
			t.Errorf("FormatRateWithin(%d) = %q; want %q", bps, got, want)
		}
	}
}

func TestFormatRateShortIsClose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bps := rates.Draw(t, "bps")
		text := policy.FormatRateShort(bps)
		got, err := policy.ParseRate(text)
		if err != nil {
			t.Fatalf("ParseRate(FormatRateShort(%d) = %q): %v", bps, text, err)
		}
		if off := math.Abs(float64(got) - float64(bps)); off > float64(bps)*0.005 {
			t.Fatalf("FormatRateShort(%d) = %q, which is off by %g", bps, text, off)
		}
		if n := len(strings.Trim(strings.Replace(text, ".", "", 1), "tgmkbi")); n > 3 && bps < 999_500_000_000_000 {
			t.Fatalf("FormatRateShort(%d) = %q has %d digits", bps, text, n)
		}
	})
}

func FuzzParseRate(f *testing.F) {
	for _, seed := range []string{"30mbit", "1.5G", "512Ki", "30MB", "-1", "1e6", "", "0.5bit", "95", "12112", "1000tbit", "30µ", "3 0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		bps, err := policy.ParseRate(text)
		if err != nil {
			if bps != 0 || err.Error() == "" {
				t.Errorf("ParseRate(%q) = %d with error %q", text, bps, err)
			}
			return
		}
		if bps < 1 || bps > policy.MaxRateBPS {
			t.Errorf("ParseRate(%q) = %d, out of range", text, bps)
		}
		if again, err := policy.ParseRate(policy.FormatRate(bps)); err != nil || again != bps {
			t.Errorf("ParseRate(%q) = %d, which does not survive FormatRate: %d, %v", text, bps, again, err)
		}
	})
}
