package ovsdb

import "testing"

func TestLinkSpeed(t *testing.T) {
	speed, negative := 10_000_000, -1
	for name, c := range map[string]struct {
		speed  *int
		driver string
		want   uint64
	}{
		"card":          {&speed, "igb", 10e6},
		"no driver":     {&speed, "", 10e6},
		"tap":           {&speed, "tun", 0},
		"veth":          {&speed, "veth", 0},
		"not reported":  {nil, "igb", 0},
		"no link (yet)": {&negative, "igb", 0},
	} {
		i := interfaceRow{LinkSpeed: c.speed, Status: map[string]string{"driver_name": c.driver}}
		if got := i.linkSpeedBPS(); got != c.want {
			t.Errorf("%s: %d bit/s, want %d", name, got, c.want)
		}
	}
}
