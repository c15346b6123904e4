package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/openflow"
	"github.com/weir-project/weir/test/must"
)

// conversation is what a controller and a switch say when they meet, with one
// flow.
func conversation(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for i, m := range []openflow.Message{
		openflow.NewHello(),
		&openflow.FeaturesReply{DatapathID: 1, NTables: 254, Capabilities: openflow.OFPC_FLOW_STATS | openflow.OFPC_QUEUE_STATS},
		&openflow.FlowMod{Priority: 100, BufferID: openflow.OFP_NO_BUFFER, OutPort: openflow.OFPP_ANY, OutGroup: openflow.OFPG_ANY,
			Match: openflow.Match{Fields: []openflow.OXM{
				openflow.NewOXMNumber(openflow.OFPXMT_OFB_ETH_TYPE, 0x0800),
				openflow.NewOXM(openflow.OFPXMT_OFB_IPV4_DST, []byte{198, 18, 0, 1}, nil),
			}},
			Instructions: []openflow.Instruction{&openflow.InstructionActions{Type: openflow.OFPIT_APPLY_ACTIONS, Actions: []openflow.Action{
				&openflow.ActionSetQueue{QueueID: 1}, &openflow.ActionOutput{Port: 2},
			}}}},
		&openflow.ErrorMessage{ErrorType: openflow.OFPET_BAD_ACTION, Code: uint16(openflow.OFPBAC_BAD_QUEUE), Data: []byte{4}},
	} {
		b, err := m.MarshalBinary()
		must.Succeed(t, err)
		b[7] = byte(i + 1) // the XID
		all = append(all, b...)
	}
	return all
}

func messageFile(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "messages.bin")
	must.Succeed(t, os.WriteFile(path, b, 0o600))
	return path
}

func TestSDNDecode(t *testing.T) {
	path := messageFile(t, conversation(t))
	code, stdout, stderr := run("decode", path)
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	compareGolden(t, "sdn-decode", stdout)

	code, stdout, stderr = run("decode", "--numbers", path)
	if code != 0 || stderr != "" || strings.Contains(stdout, "OFP") || !strings.Contains(stdout, `"out_port":4294967295`) {
		t.Errorf("with numbers: exit code %d: %s%s", code, stdout, stderr)
	}
}

// TestSDNDecodeBad prints what comes before a message that is wrong, and says
// where it is wrong.
func TestSDNDecodeBad(t *testing.T) {
	good := conversation(t)
	for name, test := range map[string]struct {
		add   []byte
		lines int
		want  string
	}{
		"truncated header":   {[]byte{4, 2}, 4, "byte 167 (message 5 begins at byte 165): ofp_header: unexpected EOF"},
		"truncated message":  {[]byte{4, 2, 0, 9, 0, 0, 0, 0}, 4, "byte 173 (message 5 begins at byte 165): ofp_header: OFPT_ECHO_REQUEST of length 9: unexpected EOF"},
		"oversized message":  {[]byte{4, 5, 0, 9, 0, 0, 0, 0, 0}, 4, "byte 173 (message 5 begins at byte 165): OFPT_FEATURES_REQUEST: 1 bytes after the last field"},
		"version of another": {[]byte{1, 5, 0, 8, 0, 0, 0, 0}, 4, "byte 165 (message 5 begins at byte 165): ofp_header: OFPT_FEATURES_REQUEST of version 1: not OpenFlow 1.3 (version 4)"},
		"another type":       {[]byte{4, 30, 0, 8, 0, 0, 0, 0}, 4, "byte 166 (message 5 begins at byte 165): ofp_header: message type 30: not OpenFlow 1.3"},
		"no OpenFlow at all": {[]byte("# Weir\n\nWeir shares"), 4, "byte 165 (message 5 begins at byte 165): ofp_header: 32 of version 35: not OpenFlow 1.3 (version 4)"},
		"no length":          {make([]byte, 100), 4, "byte 167 (message 5 begins at byte 165): ofp_header: length 0 is less than a header's"},
	} {
		path := messageFile(t, append(bytes.Clone(good), test.add...))
		code, stdout, stderr := run("decode", path)
		if code != cmdline.Failed || strings.Count(stdout, "\n") != test.lines {
			t.Errorf("%s: exit code %d, %s", name, code, stdout)
		}
		if want := "weir: " + path + ": " + test.want + "\n"; stderr != want {
			t.Errorf("%s: %s, want %s", name, stderr, want)
		}
	}
	for _, args := range [][]string{{"sdn", "decode"}, {"sdn"}, {"sdn", "encode"}, {"sdn", "decode", "a", "b"}} {
		if code, _, _ := run(args...); code != cmdline.Usage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
	if code, _, stderr := run("decode", "/nowhere"); code != cmdline.Failed || !strings.Contains(stderr, "read messages: open /nowhere") {
		t.Errorf("no file: exit code %d, %s", code, stderr)
	}
	empty := messageFile(t, nil)
	if code, stdout, stderr := run("decode", empty); code != 0 || stdout != "" || stderr != empty+" is empty: there is no message in it\n" {
		t.Errorf("an empty file: exit code %d, %s%s", code, stdout, stderr)
	}
}

// TestSDNDecodeStdin prints messages as they come.
func TestSDNDecodeStdin(t *testing.T) {
	in, say := io.Pipe()
	hear, out := io.Pipe()
	root := NewRoot("weir sdn")
	root.SetArgs([]string{"decode", "-"})
	root.SetIn(in)
	root.SetOut(out)
	done := make(chan error, 1)
	go func() { done <- root.Execute() }()
	line := make([]byte, 1000)
	for range 2 {
		if _, err := say.Write([]byte{4, 20, 0, 8, 0, 0, 0, 9}); err != nil {
			t.Fatal(err)
		}
		n, err := hear.Read(line)
		if want := `{"version":4,"type":"OFPT_BARRIER_REQUEST","xid":9}` + "\n"; err != nil || string(line[:n]) != want {
			t.Fatalf("%s, %v, want %s", line[:n], err, want)
		}
	}
	say.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestSDNRunBad: what cannot be is said before anything listens.
func TestSDNRunBad(t *testing.T) {
	for args, want := range map[string]string{
		"--gateway=198.18.1.0":                                      "--gateway 198.18.1.0: want an address with its network's length",
		"--gateway=198.18.1.0/24":                                   "address of the network or its broadcast",
		"--gateway=198.18.1.255/24":                                 "address of the network or its broadcast",
		"--gateway=198.18.1.1/31":                                   "no room for hosts",
		"--gateway=fe80::1/64":                                      "every gateway has fe80::57:65ff:fe69:7200 beside it",
		"--gateway=::ffff:198.18.1.1/120":                           "want an address with its network's length",
		"--gateway=ff05::1/64":                                      "want an address with its network's length",
		"--gateway=fd00::/64":                                       "this is the address of the network",
		"--gateway=fd00::1/127":                                     "no room for hosts",
		"--gateway=fd00::1/64 --gateway=fd00::2/48":                 "its network overlaps with that of fd00::1/64",
		"--gateway=fd00::1/64 --route=0.0.0.0/0=fd00::2":            "fd00::2 is not of the same version of IP",
		"--gateway=fd00::1/64 --route=::/0=fe80::57:65ff:fe69:7200": "fe80::57:65ff:fe69:7200 is the gateway itself",
		"--gateway=198.18.1.1/24 --route=::/0=fe80::1":              "fe80::1 is in the network of no gateway",
		"--gateway=fd00::1/64 --route=fd01::1/64=fd00::2":           "want a network such as",
		"--listen=foo":                                              "--listen \"foo\": want tcp:ADDR:PORT",
		"--listen=tcp:127.0.0.1":                                    "want tcp:ADDR:PORT",
		"--listen=tcp:127.0.0.1:66000":                              "want tcp:ADDR:PORT",
		"--listen=unix:":                                            "want tcp:ADDR:PORT",
		"--listen=tls:127.0.0.1:0":                                  "--listen tls:127.0.0.1:0: TLS needs a certificate",
		"--listen=tls:127.0.0.1:0 --cert=/nowhere --key=/nowhere --ca=/nowhere": "read the controller's certificate",
		"--http=7484":           "--http \"7484\": want ADDR:PORT",
		"--http=127.0.0.1:page": "want ADDR:PORT",
		"--gateway=198.18.1.1/24 --gateway=198.18.0.1/16":                                   "gateway 198.18.0.1/16: its network overlaps with that of 198.18.1.1/24",
		"--gateway=198.18.1.1/24 --route=0.0.0.0/0":                                         "--route 0.0.0.0/0: want NETWORK=ROUTER",
		"--gateway=198.18.1.1/24 --route=0.0.0.0/0=198.18.2.1":                              "198.18.2.1 is in the network of no gateway",
		"--gateway=198.18.1.1/24 --route=0.0.0.0/0=198.18.1.1":                              "198.18.1.1 is the gateway itself",
		"--gateway=198.18.1.1/24 --route=203.0.113.5/24=198.18.1.2":                         "want a network such as",
		"--route=0.0.0.0/0=198.18.1.1":                                                      "in the network of no gateway",
		"--gateway=198.18.1.1/24 --route=0.0.0.0/0=198.18.1.2 --route=0.0.0.0/0=198.18.1.3": "route 0.0.0.0/0 is given twice",
		"--takeover-after=500ms":                                                            "--takeover-after 500ms is less than 1s",
		"--takeover-after=-1s":                                                              "--takeover-after -1s is less than 1s",
		"--model=/nowhere":                                                                  "--model: read classifier: open /nowhere: no such file",
		"--priority=256":                                                                    "256",
		"--priority=7":                                                                      "--priority needs --takeover-after",
		"--tokens=/t":                                                                       "--api ADDR:PORT is missing",
		"--api=here":                                                                        "--api: \"here\" is not an address and a port",
		"--api=127.0.0.1:0 --api-key=/k":                                                    "--api needs TLS: give --api-cert and --api-key",
		"--cert=c --key=k":                                                                  "switches would connect without TLS",
		"--rate=100mbit":                                                                    "--rate needs --ovsdb",
		"--ef-max=60%":                                                                      "--ef-max needs --ovsdb",
		"--replace":                                                                         "--replace needs --ovsdb",
		"--queues=/q.yaml":                                                                  "--queues needs --ovsdb",
	} {
		if code, _, stderr := run(append([]string{"run", "--listen", "unix:/nowhere/of.sock"}, strings.Fields(args)...)...); code != cmdline.Usage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// TestSDNConfig: options come from the file where the command line has none, and a mistake in
// the file is reported with its line before anything listens.
func TestSDNConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sdn.yaml")
	for _, test := range []struct{ file, args, want string }{
		{"takeover_after: 500ms", "", "--takeover-after 500ms is less than 1s"},
		{"takeover_after: 500ms", "--takeover-after=400ms", "--takeover-after 400ms is less than 1s"},
		{"takeover-after: 3s", "", "sdn.yaml:1: takeover-after: unknown key; did you mean takeover_after?"},
		{"config: /other", "", "sdn.yaml:1: config: unknown key"},
		{"rate: 1mbit\npriority: high", "", `sdn.yaml:2: priority: "high": `},
		{"trust: {ab: [p1, 'p,2']}\nrate: 1mbit", "", "--trust ab:p,2: want PORT or SWITCH:PORT"},
		{"trust: {ab: [p1, p1]}\nrate: 1mbit", "", "--trust ab:p1: the port is given twice"},
		{"trust: [p1, zz:p2]\nrate: 1mbit", "", `--trust zz:p2: "zz" is no datapath identifier`},
		{"trust: p1", "", "--trust needs --rate"},
		{"rate: {p1: fast}\novsdb: unix:/db", "", "--rate p1=fast is not a rate"},
		{"level: {WEB: XX}", "", "XX"},
		{"tokens: /t", "", "--api ADDR:PORT is missing"},
		{"gateway: [198.18.1.1/24]\nroute: {0.0.0.0/0: 198.18.2.1}", "", "198.18.2.1 is in the network of no gateway"},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(test.file), 0o600))
		if code, _, stderr := run(append([]string{"run", "--config", path, "--listen", "unix:/nowhere/of.sock"}, strings.Fields(test.args)...)...); code != cmdline.Usage || !strings.Contains(stderr, test.want) {
			t.Errorf("%s %s: exit code %d, %s", test.file, test.args, code, stderr)
		}
	}
	if code, _, stderr := run("run", "--config", "/nowhere/sdn.yaml"); code != cmdline.Usage || !strings.Contains(stderr, "read configuration: open /nowhere/sdn.yaml") {
		t.Errorf("no file: exit code %d, %s", code, stderr)
	}
}
