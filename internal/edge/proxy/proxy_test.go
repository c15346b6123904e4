package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func server(name string, weight, maxUsers int) Server {
	return Server{Name: name, Address: netip.MustParseAddrPort("198.18.0.9:80"), Weight: weight, MaxUsers: maxUsers}
}

func TestPlan(t *testing.T) {
	const backend = "instances-80"
	wanted := []Port{{Host: 80, Servers: []Server{server("a", 256, 10)}}}
	wanted[0].Servers[0].Asked = true
	for name, test := range map[string]struct {
		seen    []ServerStatus
		want    []string
		leaving int
	}{
		"as it should be": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10, Up: true}}, nil, 0},
		"new": {nil, []string{
			"add server instances-80/a 198.18.0.9:80 check inter 500ms fastinter 200ms downinter 50ms fall 2 rise 1 weight 0 maxconn 10; enable health instances-80/a; enable server instances-80/a; set server instances-80/a health down; set server instances-80/a weight 256",
		}, 0},
		"other values": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 1, MaxUsers: 9}}, []string{
			"set server instances-80/a weight 256", "set maxconn server instances-80/a 10",
		}, 0},
		"comes back": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10, Leaving: true}}, []string{
			"set server instances-80/a state ready",
		}, 0},
		"goes, with users": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10}, {Backend: backend, Name: "b", Users: 2, Waiting: 1}}, []string{
			"set server instances-80/b state drain",
		}, 3},
		"goes, without users": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10}, {Backend: backend, Name: "b", Up: true}}, []string{
			"set server instances-80/b state drain",
		}, 0},
		"goes, down": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10}, {Backend: backend, Name: "b"}}, []string{
			"set server instances-80/b state maint", "del server instances-80/b",
		}, 0},
		"busy": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10, Users: 3, Check: "Layer7 timeout"}}, nil, 0},
		"dead, with users": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10, Users: 3, Unreachable: true}}, []string{
			"shutdown sessions server instances-80/a",
		}, 0},
		"is going": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10}, {Backend: backend, Name: "b", Users: 2, Leaving: true}}, nil, 2},
		"has gone": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10}, {Backend: backend, Name: "b", Leaving: true}}, []string{
			"set server instances-80/b state maint", "del server instances-80/b",
		}, 0},
		"still in maintenance": {[]ServerStatus{{Backend: backend, Name: "a", Weight: 256, MaxUsers: 10}, {Backend: backend, Name: "b", Leaving: true, Maintenance: true}}, []string{
			"del server instances-80/b",
		}, 0},
	} {
		got, leaving := plan(wanted, test.seen)
		if !reflect.DeepEqual(got, test.want) || leaving != test.leaving {
			t.Errorf("%s: got %q and %d leaving, want %q and %d", name, got, leaving, test.want, test.leaving)
		}
	}
}

const statHead = "# pxname,svname,qcur,scur,slim,stot,bout,econ,eresp,status,weight,req_tot,hrsp_5xx,qtime,ctime,rtime,check_desc,uweight,\n"

func TestStat(t *testing.T) {
	seen, err := parseStat(statHead +
		"users-80,FRONTEND,,7,,50,9000,,,OPEN,,60,3,,,,,,\n" +
		"control,FRONTEND,,1,,5,100,,,OPEN,,,,,,,,,\n" +
		"instances-80,a,2,5,10,30,,,,UP,256,,,1,2,10,\"Layer4 check, passed\",256,\n" +
		"instances-80,b,0,0,0,10,,,,DOWN 1/2,1,,,0,0,53,Connection refused,1,\n" +
		"instances-80,c,0,1,0,0,,,,DRAIN,0,,,,,,,256,\n" +
		"instances-80,BACKEND,2,6,200,40,,1,2,UP,,,3,,,,,,\n" +
		"control,BACKEND,0,1,200,40,,9,9,UP,,,9,,,,,,\n")
	if err != nil {
		t.Fatal(err)
	}
	// 30 answers after 13 ms and 10 after 53 ms.
	want := Status{
		Users: 6, Connected: 7, Waiting: 2, Requests: 60, Failed: 6, SentBytes: 9000, Response: 23 * time.Millisecond,
		Servers: []ServerStatus{
			{Backend: "instances-80", Name: "a", Users: 5, Waiting: 2, Weight: 256, MaxUsers: 10, Up: true, Requests: 30, Response: 13 * time.Millisecond, Check: "Layer4 check, passed"},
			{Backend: "instances-80", Name: "b", Weight: 1, Requests: 10, Response: 53 * time.Millisecond, Check: "Connection refused"},
			{Backend: "instances-80", Name: "c", Users: 1, Weight: 256, Leaving: true},
		},
	}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("got\n%+v, want\n%+v", seen, want)
	}
	full, err := parseStat(statHead + "users-80,FRONTEND,,9,10,,,,,OPEN,,,,,,,,,\nusers-81,FRONTEND,,10,10,,,,,OPEN,,,,,,,,,\n")
	if err != nil || !full.Full {
		t.Errorf("all places of a port are taken: %+v, %v", full, err)
	}
	for _, bad := range []string{"", "# pxname,svname\n", "Unknown command"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestWeights(t *testing.T) {
	const ms = time.Millisecond
	local, near, far := Candidate{Local: true, Answers: true}, Candidate{Answers: true, RoundTrip: ms}, Candidate{Answers: true, RoundTrip: 7 * ms}
	free := func(p Candidate, bps uint64) Candidate { p.FreeBPS = bps; return p }
	now := func(p Candidate, weight int) Candidate { p.Weight = weight; return p }
	dead := func(p Candidate) Candidate { p.Answers = false; return p }
	for name, test := range map[string]struct {
		candidates      []Candidate
		users, maxUsers int
		want            []int
	}{
		"one":                           {[]Candidate{local}, 99, 10, []int{256}},
		"local first":                   {[]Candidate{local, near}, 7, 10, []int{256, 1}},
		"crowded":                       {[]Candidate{local, near, far}, 8, 10, []int{256, 256, 64}},
		"no local one":                  {[]Candidate{near, far}, 0, 10, []int{256, 64}},
		"the local one does not answer": {[]Candidate{{Local: true}, near}, 1, 10, []int{256, 256}},
		"nobody knows how many":         {[]Candidate{local, near}, 1, 0, []int{256, 256}},
		"a quarter is free":             {[]Candidate{free(near, 40e6), free(near, 10e6)}, 0, 10, []int{256, 128}},
		"far and free":                  {[]Candidate{free(near, 1e6), free(far, 64e6)}, 0, 10, []int{128, 256}},
		"free, nobody knows":            {[]Candidate{free(near, 40e6), near, free(near, 10e6)}, 0, 10, []int{256, 256, 128}},
		"the free one does not answer":  {[]Candidate{dead(free(near, 40e6)), free(near, 10e6)}, 0, 10, []int{256, 256}},
		"about as before":               {[]Candidate{now(near, 256), now(far, 80)}, 0, 10, []int{256, 80}},
		"not as before":                 {[]Candidate{now(near, 256), now(far, 90)}, 0, 10, []int{256, 64}},
		"still crowded":                 {[]Candidate{local, now(near, 256)}, 7, 10, []int{256, 256}},
		"calm again":                    {[]Candidate{local, now(near, 256)}, 5, 10, []int{256, 1}},
	} {
		if got := Weights(test.candidates, test.users, test.maxUsers); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}

// candidates are instances as a proxy may see them.
func candidates(t *rapid.T) []Candidate {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Candidate {
		return Candidate{
			Local: rapid.IntRange(0, 3).Draw(t, "local") == 0, Answers: rapid.IntRange(0, 3).Draw(t, "answers") > 0,
			RoundTrip: time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "round trip")),
			FreeBPS:   rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(1, 1e9), rapid.Just(uint64(math.MaxUint64))).Draw(t, "free"),
			Weight:    rapid.IntRange(0, maxWeight).Draw(t, "weight"),
		}
	}), 1, 8).Draw(t, "candidates")
}

// TestWeightsAlways is what holds of weights whatever a proxy sees.
func TestWeightsAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := candidates(t)
		users, maxUsers := rapid.IntRange(0, 100).Draw(t, "users"), rapid.IntRange(0, 20).Draw(t, "max users")
		weights := Weights(seen, users, maxUsers)
		for i, w := range weights {
			if w < 1 || w > maxWeight || seen[i].Local && w != maxWeight {
				t.Fatalf("%+v has the weight %d", seen[i], w)
			}
		}
		numbers := make([]int, len(seen))
		for i := range numbers {
			numbers[i] = i
		}
		numbers = rapid.Permutation(numbers).Draw(t, "order")
		other := make([]Candidate, len(seen))
		for i, n := range numbers {
			other[i] = seen[n]
		}
		for i, w := range Weights(other, users, maxUsers) {
			if w != weights[numbers[i]] {
				t.Fatalf("in another order %+v has the weight %d, not %d", other[i], w, weights[numbers[i]])
			}
		}
		for i := range seen {
			better := slices.Clone(seen)
			if better[i].FreeBPS > 0 { // else nobody knows
				better[i].FreeBPS = rapid.Uint64Range(better[i].FreeBPS, math.MaxUint64).Draw(t, "freer")
			}
			better[i].RoundTrip = time.Duration(rapid.Int64Range(0, int64(better[i].RoundTrip)).Draw(t, "nearer"))
			if w := Weights(better, users, maxUsers)[i]; w < weights[i] {
				t.Fatalf("%+v has %d, and better than that, %+v, %d", seen[i], weights[i], better[i], w)
			}
		}
	})
}

// TestWeightsRest: once told, weights stay as they are while users and what others send
// go up and down by a tenth.
func TestWeightsRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := candidates(t)
		for i := range seen {
			seen[i].Weight = 0
			if seen[i].FreeBPS > 0 {
				seen[i].FreeBPS = min(max(seen[i].FreeBPS, 1e3), 1e12)
			}
		}
		usual := rapid.SampledFrom([]int{0, 68, 100, 500}).Draw(t, "users") // of locals with 100 each
		users := usual
		tell := func() []int {
			weights := Weights(seen, users, 100)
			for i, w := range weights {
				seen[i].Weight = w
			}
			return weights
		}
		first := tell()
		sure := slices.Clone(seen)
		for range 10 {
			for i := range seen {
				seen[i].FreeBPS = uint64(float64(sure[i].FreeBPS) * rapid.Float64Range(0.9, 1.1).Draw(t, "noise"))
			}
			users = rapid.IntRange(usual*9/10, usual*11/10).Draw(t, "users now")
			if again := tell(); !slices.Equal(again, first) {
				t.Fatalf("the weights were %v and are %v", first, again)
			}
		}
	})
}

func TestHealthPath(t *testing.T) {
	for path, good := range map[string]bool{
		"": true, "/": true, "/healthy?deep=1": true,
		"healthy": false, "/a b": false, "/a\n  server x": false, "/$HOME": false, "/a#b": false, "/'": false,
	} {
		if err := CheckHealthPath(path); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestFile(t *testing.T) {
	c := Config{
		Service: "shop", Mode: ModeHTTP, Health: "/healthy", Control: "/proxy/haproxy.sock mode 600 level admin", QueueTimeout: time.Second,
		Ports: []Port{{Host: 80, Servers: []Server{server("a", 256, 0)}}},
	}
	file := c.File()
	for _, line := range []string{"  bind :80\n.if defined(WEIR_EDGE_IPV6)\n  bind :::80 v6only\n.endif\n", " track-sc0 src,ipmask(32,64)\n", "  option httpchk GET /healthy\n", "  server a 198.18.0.9:80 check ", "  stats socket /proxy/haproxy.sock mode 600 level admin\n"} {
		if !strings.Contains(file, line) {
			t.Errorf("%q is not in\n%s", line, file)
		}
	}
	if strings.Contains(file, "ssl") {
		t.Errorf("there is a way in from other hosts:\n%s", file)
	}
	for users, places := range map[int]int{0: 4000, 1999: 4000, 5000: 10_000, 10_000_000: 50_000} {
		c.Users = users
		if file := c.File(); !strings.Contains(file, fmt.Sprintf("global\n  maxconn %d\n", places+100)) || !strings.Contains(file, fmt.Sprintf("v6only\n.endif\n  maxconn %d\n", places)) {
			t.Errorf("%d users have not %d places at a port:\n%s", users, places, file)
		}
	}
	c.Remote = &Remote{Port: 7490, Socket: "/run/haproxy.sock", Certificate: "/proxy/control.pem", Clients: "/proxy/clients.pem"}
	const options = " ssl crt /proxy/control.pem ca-file /proxy/clients.pem verify required\n"
	if file = c.File(); !strings.Contains(file, "bind :7490"+options+".if defined(WEIR_EDGE_IPV6)\n  bind :::7490 v6only"+options) {
		t.Errorf("no way in with a certificate:\n%s", file)
	}
}

// TestTooOld: a proxy that takes no servers says what to install.
func TestTooOld(t *testing.T) {
	c := Control{Dial: func(context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			_, _ = there.Read(make([]byte, 100))
			_, _ = there.Write([]byte("This command is restricted to experimental mode only.\n"))
			there.Close()
		}()
		return here, nil
	}}
	if err := c.do(t.Context(), "add server instances-80/a 198.18.0.9:80"); !errors.Is(err, ErrTooOld) {
		t.Error(err)
	}
}

// TestRoundTrip: the time of a check that only connects is a round trip.
func TestRoundTrip(t *testing.T) {
	const head = "# pxname,svname,qcur,scur,status,weight,check_status,check_duration,\n"
	for row, want := range map[string]time.Duration{
		"L4OK,0": time.Millisecond / 2, "* L4OK,7": 7 * time.Millisecond, "L7OK,7": 0, "L4TOUT,1000": 0, ",": 0,
	} {
		seen, err := parseStat(head + "instances-80,a,0,0,UP,1," + row + ",\n")
		if err != nil || len(seen.Servers) != 1 || seen.Servers[0].RoundTrip != want {
			t.Errorf("%s: %v, %+v; want %v", row, err, seen.Servers, want)
		}
	}
}
