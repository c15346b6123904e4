package advise

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// rateShare of the measured rate is proposed, so that packets queue here and not before the link.
const rateShare = 0.95

// Ethernet, IP and TCP with a timestamp take these bytes of a frame beside the data, as tc counts.
const (
	headerBytesIPv4 = 14 + 20 + 32
	headerBytesIPv6 = 14 + 40 + 32
)

// Transfer is what a transfer over a link has carried.
type Transfer struct {
	// BPS is what the link carried in each second, in bits per second of whole frames.
	BPS []float64
	// SteadyBPS is what it carried in three of four seconds, WorstBPS in the worst.
	SteadyBPS, WorstBPS float64
}

// ProposedBPS returns the rate for the configuration, in bits per second.
func (t Transfer) ProposedBPS() uint64 { return uint64(t.SteadyBPS * rateShare) }

// ParseTransfer reads what iperf3 3.1 or newer prints of a TCP transfer with --json. It is an error
// if iperf3 failed, or has counted less than four seconds.
func ParseTransfer(data []byte) (Transfer, error) {
	var printed struct {
		Error string
		Start struct {
			MSS       int `json:"tcp_mss_default"`
			Connected []struct {
				Remote string `json:"remote_host"`
			}
		}
		Intervals []struct {
			Sum struct {
				BPS     float64 `json:"bits_per_second"`
				Seconds float64
				Omitted bool
			}
		}
	}
	if err := json.Unmarshal(data, &printed); err != nil {
		return Transfer{}, fmt.Errorf("read what iperf3 printed: %w", err)
	}
	if printed.Error != "" {
		return Transfer{}, errors.New("iperf3: " + printed.Error)
	}
	start := printed.Start
	if start.MSS <= 0 || len(start.Connected) == 0 {
		return Transfer{}, errors.New("iperf3 printed no TCP connection")
	}
	remote, err := netip.ParseAddr(start.Connected[0].Remote)
	if err != nil {
		return Transfer{}, fmt.Errorf("read what iperf3 printed: %w", err)
	}
	headers := headerBytesIPv6
	if remote.Unmap().Is4() {
		headers = headerBytesIPv4
	}
	t := Transfer{}
	for _, i := range printed.Intervals {
		// The last one may be a few milliseconds.
		if !i.Sum.Omitted && i.Sum.Seconds > 0.9 {
			t.BPS = append(t.BPS, i.Sum.BPS*float64(start.MSS+headers)/float64(start.MSS))
		}
	}
	if len(t.BPS) < 4 {
		return Transfer{}, fmt.Errorf("iperf3 counted %d seconds: at least 4 are needed", len(t.BPS))
	}
	inOrder := slices.Sorted(slices.Values(t.BPS))
	t.SteadyBPS, t.WorstBPS = inOrder[len(inOrder)/4], inOrder[0]
	return t, nil
}
