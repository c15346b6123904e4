package uplink

import "testing"

// TestIncomingName: names fit a device, are readable, and differ where those of uplinks do.
func TestIncomingName(t *testing.T) {
	seen := map[string]string{}
	for _, uplink := range []string{"eth0", "enp0s31f6.10", "enp0s31f6.100", "enp0s31f6.1000", "enp0s31f6.1001"} {
		name := IncomingName(uplink)
		if len(name) > 15 || name[:6] != ("in-" + uplink)[:6] || seen[name] != "" {
			t.Errorf("%s: %s, as %s", uplink, name, seen[name])
		}
		seen[name] = uplink
	}
	if got := IncomingName("eth0"); got != "in-eth0" {
		t.Errorf("eth0: %s", got)
	}
}
