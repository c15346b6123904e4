package advise

import (
	"fmt"
	"strings"
	"testing"
)

// printed is what iperf3 prints of seconds with the given rates, in Mbit/s, after an omitted one and
// before a piece of one.
func printed(remote string, mss int, mbps ...float64) []byte {
	second := func(mbps, seconds float64, omitted bool) string {
		return fmt.Sprintf(`{"sum": {"seconds": %g, "bits_per_second": %g, "omitted": %t}}`, seconds, mbps*1e6, omitted)
	}
	intervals := []string{second(999, 1, true)}
	for _, one := range mbps {
		intervals = append(intervals, second(one, 1.0002, false))
	}
	intervals = append(intervals, second(0.1, 0.004, false))
	return fmt.Appendf(nil, `{"start": {"connected": [{"remote_host": %q}], "tcp_mss_default": %d}, "intervals": [%s], "end": {}}`,
		remote, mss, strings.Join(intervals, ","))
}

func TestParseTransfer(t *testing.T) {
	got, err := ParseTransfer(printed("198.18.0.2", 1448, 90, 96, 94, 60, 95, 97, 98, 99))
	if err != nil {
		t.Fatal(err)
	}
	// 1514 bytes of frame carry 1448 of data.
	const frames = 1514. / 1448 * 1e6
	if len(got.BPS) != 8 || got.SteadyBPS != 94*frames || got.WorstBPS != 60*frames || got.ProposedBPS() != 93_370_303 {
		t.Errorf("%+v, proposes %d", got, got.ProposedBPS())
	}
	if got, err := ParseTransfer(printed("2001:2::1", 1428, 10, 10, 10, 10)); err != nil || got.WorstBPS != 10e6*1514/1428 {
		t.Errorf("IPv6: %+v, %v", got, err)
	}
	if got, err := ParseTransfer(printed("::ffff:198.18.0.2", 1448, 10, 10, 10, 10)); err != nil || got.WorstBPS != 10*frames {
		t.Errorf("IPv4 in IPv6: %+v, %v", got, err)
	}
}

func TestParseTransferRefuses(t *testing.T) {
	for want, data := range map[string]string{
		"read what iperf3 printed": "iperf3: parameter error",
		"Connection refused":       `{"start": {"connected": []}, "error": "unable to connect to server: Connection refused"}`,
		"no TCP connection":        `{"start": {"connected": []}, "intervals": []}`,
		"counted 3 seconds":        string(printed("198.18.0.2", 1448, 1, 1, 1)),
		`unable to parse IP`:       string(printed("server", 1448, 1, 1, 1, 1)),
	} {
		if _, err := ParseTransfer([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", data, err, want)
		}
	}
}
