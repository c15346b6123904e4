package docker

import (
	"encoding/json"
	"fmt"
	"testing"
)

func TestPorts(t *testing.T) {
	for answer, want := range map[string]string{
		`{}`:                          "[]",
		`{"Ports": null}`:             "[]",
		`{"Ports": {"80/tcp": null}}`: "[]", // exposed and not published
		`{"Ports": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8002"}, {"HostIp": "::", "HostPort": "8002"}]}}`:                                                          "[{80 8002 tcp true true}]",
		`{"Ports": {"80/tcp": [{"HostIp": "198.18.0.1", "HostPort": "80"}], "81/tcp": [{"HostIp": "0.0.0.0", "HostPort": "81"}, {"HostIp": "fd00::1", "HostPort": "81"}]}}`: "[{80 80 tcp false false} {81 81 tcp true false}]",
		`{"Ports": {"443/tcp": [{"HostPort": "9443"}], "53/udp": [{"HostPort": "54"}, {"HostPort": "53"}], "53/tcp": [{"HostPort": "53"}]}}`:                                "[{53 53 tcp true true} {53 53 udp true true} {53 54 udp true true} {443 9443 tcp true true}]",
		`{"Ports": {"x/tcp": [{"HostPort": "1"}], "70000/tcp": [{"HostPort": "1"}], "1/tcp": [{"HostPort": ""}, {"HostPort": "x"}]}}`:                                       "[]",
	} {
		var info inspection
		if err := json.Unmarshal([]byte(`{"NetworkSettings": `+answer+`}`), &info); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(portsOf(&info)); got != want {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
}
