package proxy

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Status is HAProxy's state from "show stat".
type Status struct {
	// Users is the number of requests in progress (TCP: connections), queued ones included. An idle
	// connection is no user.
	Users int
	// Connected is the number of connections of users, idle ones included.
	Connected int
	// Full: all places of a port are taken, so further users wait in the kernel.
	Full bool
	// Waiting is the number of queued requests.
	Waiting int
	// Requests and Failed count since the proxy's start: requests (TCP: connections), and those
	// refused, aborted or answered with 5xx.
	Requests, Failed uint64
	SentBytes        uint64
	// Response is the mean of the last 1024 answers, from the request to the
	// instance's first byte, the wait in the queue included; 0 as long as there was none.
	Response time.Duration
	Servers  []ServerStatus
	// ends: the proxy accepts no new users and ends after the present ones.
	ends bool
}

// ServerStatus is the state of an instance at one port.
type ServerStatus struct {
	Backend, Name string
	// Address is where users are sent; invalid if HAProxy does not say.
	Address  netip.AddrPort
	Users    int
	Waiting  int
	Weight   int
	MaxUsers int
	Up       bool
	// Leaving: the server gets no new users; it is drained or in maintenance.
	Leaving, Maintenance bool
	Requests             uint64
	Response             time.Duration
	// Check is the result of the last health check as text.
	Check string
	// RoundTrip is how long the last check took to connect, in whole milliseconds and at least half of
	// one; 0 if it was an HTTP request, or failed.
	RoundTrip time.Duration
	// Unreachable: the last check found that no connection is accepted.
	Unreachable bool
}

// parseStat reads what "show stat" prints: a table with a head, comma separated.
func parseStat(text string) (Status, error) {
	reader := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "# ")))
	reader.FieldsPerRecord = -1
	head, err := reader.Read()
	if err != nil {
		return Status{}, fmt.Errorf("read the proxy's statistics: %w", err)
	}
	columns := map[string]int{}
	for i, name := range head {
		columns[name] = i
	}
	for _, name := range []string{"pxname", "svname", "scur", "qcur", "status", "weight"} {
		if _, ok := columns[name]; !ok {
			return Status{}, fmt.Errorf("read the proxy's statistics: no column %s: is it HAProxy 2.6 or newer?", name)
		}
	}
	var seen Status
	var answers weighted
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			seen.Response = answers.mean()
			return seen, nil
		} else if err != nil {
			return Status{}, fmt.Errorf("read the proxy's statistics: %w", err)
		}
		seen.add(statRow{columns, fields}, &answers)
	}
}

func (s *Status) add(row statRow, answers *weighted) {
	proxy, server := row.text("pxname"), row.text("svname")
	switch {
	case server == "FRONTEND":
		s.ends = s.ends || row.text("status") == "STOP"
		if !strings.HasPrefix(proxy, "users-") {
			return
		}
		s.Full = s.Full || row.number("slim") > 0 && row.number("scur") >= row.number("slim")
		s.Connected += row.number("scur")
		s.Requests += max(row.count("req_tot"), row.count("stot"))
		s.SentBytes += row.count("bout")
		return
	case !strings.HasPrefix(proxy, "instances-"):
		return
	case server == "BACKEND":
		s.Users += row.number("scur")
		s.Waiting += row.number("qcur")
		s.Failed += row.count("econ") + row.count("eresp") + row.count("hrsp_5xx")
		return
	}
	status := row.text("status")
	found := ServerStatus{
		Backend: proxy, Name: server, Address: row.address("addr"),
		Users: row.number("scur"), Waiting: row.number("qcur"),
		Weight: row.number("uweight"), MaxUsers: row.number("slim"),
		Up:          strings.HasPrefix(status, "UP") || strings.HasPrefix(status, "no check"),
		Leaving:     strings.HasPrefix(status, "DRAIN") || strings.HasPrefix(status, "MAINT"),
		Maintenance: strings.HasPrefix(status, "MAINT"),
		Requests:    row.count("stot"),
		Check:       row.text("check_desc"),
		Unreachable: strings.HasPrefix(status, "DOWN") && strings.HasPrefix(strings.TrimPrefix(row.text("check_status"), "* "), "L4"),
	}
	if strings.TrimPrefix(row.text("check_status"), "* ") == "L4OK" {
		found.RoundTrip = max(time.Duration(row.number("check_duration"))*time.Millisecond, time.Millisecond/2)
	}
	for _, part := range []string{"qtime", "ctime", "rtime"} {
		found.Response += time.Duration(row.number(part)) * time.Millisecond
	}
	answers.add(found.Response, min(found.Requests, 1024))
	s.Servers = append(s.Servers, found)
}

// weighted is a mean over servers by their answers.
type weighted struct {
	sum   time.Duration
	count uint64
}

func (w *weighted) add(d time.Duration, count uint64) {
	w.sum += d * time.Duration(count)
	w.count += count
}

func (w *weighted) mean() time.Duration {
	if w.count == 0 {
		return 0
	}
	return w.sum / time.Duration(w.count)
}

type statRow struct {
	columns map[string]int
	fields  []string
}

func (r statRow) text(name string) string {
	if i, ok := r.columns[name]; ok && i < len(r.fields) {
		return r.fields[i]
	}
	return ""
}

// count returns 0 where HAProxy prints nothing.
func (r statRow) count(name string) uint64 {
	n, err := strconv.ParseUint(r.text(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// address returns an invalid one where HAProxy prints none.
func (r statRow) address(name string) netip.AddrPort {
	address, err := netip.ParseAddrPort(r.text(name))
	if err != nil {
		return netip.AddrPort{}
	}
	return address
}

func (r statRow) number(name string) int { return int(min(r.count(name), 1<<30)) }
