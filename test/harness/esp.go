package harness

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"
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

// EncryptedBytes is how much the states that `ip -s xfrm state` lists have
// encrypted or decrypted.
func EncryptedBytes(listed string) uint64 {
	sum := uint64(0)
	for _, m := range espBytes.FindAllStringSubmatch(listed, -1) {
		n, err := strconv.ParseUint(m[1], 10, 64)
		if err == nil {
			sum += n
		}
	}
	return sum
}
