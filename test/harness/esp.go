package harness

import (
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// espAlgorithm is how Docker encrypts overlay networks, and espKey a key for it.
const (
	espAlgorithm = "rfc4106(gcm(aes))"
	espKey       = "0x0102030405060708090a0b0c0d0e0f1011121314"
)

// ESPState are the arguments of `ip` that make the kernel encrypt what goes
// from one address to another, in transport mode.
func ESPState(from, to string) []string {
	return []string{
		"xfrm", "state", "add", "src", from, "dst", to, "proto", "esp", "spi", "0x7e11",
		"mode", "transport", "aead", espAlgorithm, espKey, "128",
	}
}

// NeedESP skips the test where the kernel has no IPsec.
func NeedESP(t testing.TB) {
	t.Helper()
	args := append([]string{"--net", "ip"}, ESPState("198.18.0.1", "198.18.0.2")...)
	if out, err := exec.CommandContext(t.Context(), "unshare", args...).CombinedOutput(); err != nil {
		t.Skipf("this kernel has no ESP: %v: %s", err, out)
	}
}

var espBytes = regexp.MustCompile(`(\d+)\(bytes\), \d+\(packets\)`)

// encryptedBytes is how much the states that `ip -s xfrm state` lists have
// encrypted or decrypted.
func encryptedBytes(listed string) uint64 {
	sum := uint64(0)
	for _, m := range espBytes.FindAllStringSubmatch(listed, -1) {
		n, err := strconv.ParseUint(m[1], 10, 64)
		if err == nil {
			sum += n
		}
	}
	return sum
}

// CheckEncrypted waits until containers send at the rates of ideal, in bits per
// second by their names, and fails if they do not, or if less than half of what
// they have sent was encrypted. The neighbour's meter cannot look into such
// packets: the scheduler's own counters have to do.
func (b *Bed) CheckEncrypted(agent *Agent, ideal map[string]float64) {
	b.tb.Helper()
	const tolerance = 0.02
	b.Await("the ideal rates", 10*time.Second, func() (bool, string) {
		containers := agent.Containers()
		reached, seen := true, fmt.Sprintf("host %d bit/s", containers["host"].RateBPS)
		for name, bps := range ideal {
			rate := containers[name].RateBPS
			reached = reached && math.Abs(float64(rate)-bps) <= tolerance*bps
			seen += fmt.Sprintf(", %s %d of %.0f", name, rate, bps)
		}
		return reached, seen
	})
	sent, containers := uint64(0), agent.Containers()
	for name := range ideal {
		sent += containers[name].SentBytes
	}
	if states := b.Run("ip", "-s", "xfrm", "state"); encryptedBytes(states) < sent/2 {
		b.tb.Errorf("of %d bytes too few were encrypted:\n%s", sent, states)
	}
}
