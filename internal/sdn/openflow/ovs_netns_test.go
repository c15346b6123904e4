//go:build netns

package openflow

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"
)

// openVSwitch is a switch with its own database and network namespace.
type openVSwitch struct {
	t   *testing.T
	dir string
}

// startOpenVSwitch starts a switch with a bridge br0 and its ports p1 (port 1,
// with queues 0 and 1) and p2. It connects to the listener.
func startOpenVSwitch(t *testing.T) (*openVSwitch, *net.UnixListener) {
	t.Helper()
	for _, program := range []string{"ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s to test against (scripts/install-deps.sh test)", program)
		}
	}
	s := &openVSwitch{t, t.TempDir()}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path("controller")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s.do("ovsdb-tool", "create", s.path("conf.db"), "/usr/share/openvswitch/vswitch.ovsschema")
	s.start("ovsdb-server", s.path("conf.db"), "--remote=p"+s.database(), "-vconsole:off", "--log-file="+s.path("ovsdb.log"))
	for wait := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(s.path("db.sock")); err == nil {
			break
		} else if time.Now().After(wait) {
			t.Fatal(err)
		}
	}
	s.vsctl("--no-wait", "init")
	s.start("ovs-vswitchd", s.database(), "--disable-system", "-vconsole:off", "--log-file="+s.path("vswitchd.log"))
	s.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "protocols=OpenFlow13", "fail_mode=secure",
		"other-config:datapath-id=00000000000000ab",
		"--", "add-port", "br0", "p1", "--", "set", "interface", "p1", "type=internal", "ofport_request=1",
		"--", "add-port", "br0", "p2", "--", "set", "interface", "p2", "type=internal", "ofport_request=2",
		"--", "set", "port", "p1", "qos=@qos", "--", "--id=@qos", "create", "qos", "type=linux-htb",
		"other-config:max-rate=100000000", "queues:0=@q0", "queues:1=@q1",
		"--", "--id=@q0", "create", "queue", "other-config:max-rate=100000000",
		"--", "--id=@q1", "create", "queue", "other-config:min-rate=50000000",
		"--", "set-controller", "br0", "unix:"+s.path("controller"))
	return s, listener
}

func (s *openVSwitch) path(name string) string { return filepath.Join(s.dir, name) }

func (s *openVSwitch) database() string { return "unix:" + s.path("db.sock") }

func (s *openVSwitch) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+s.dir, "OVS_LOGDIR="+s.dir, "OVS_DBDIR="+s.dir, "OVS_SYSCONFDIR="+s.dir)
	return cmd
}

// start runs a program in a network namespace of its own until the test ends.
func (s *openVSwitch) start(program string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.command(ctx, program, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		if log, err := os.ReadFile(s.path(strings.TrimPrefix(program, "ovs-") + ".log")); err == nil && s.t.Failed() {
			s.t.Logf("%s: %s", program, log)
		}
	})
}

func (s *openVSwitch) do(program string, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	out, err := s.command(ctx, program, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s %s: %v: %s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (s *openVSwitch) vsctl(args ...string) {
	s.t.Helper()
	s.do("ovs-vsctl", append([]string{"--db=" + s.database(), "--timeout=15"}, args...)...)
}

// controller is this end of a connection to a switch.
type controller struct {
	t      *testing.T
	conn   net.Conn
	reader *Reader
	xid    uint32
	unread []Message // that nobody has asked for yet
}

func (c *controller) send(m Message) uint32 {
	c.t.Helper()
	c.xid++
	m.header().XID = c.xid
	if _, err := c.conn.Write(mustMarshal(c.t, m)); err != nil {
		c.t.Fatalf("send %v: %v", m.MessageType(), err)
	}
	return c.xid
}

// next returns the next message, which must be the same when it is written
// again.
func (c *controller) next() Message {
	c.t.Helper()
	for {
		b, err := c.reader.Next()
		if err != nil {
			c.t.Fatalf("receive: %v", err)
		}
		m, err := Parse(b)
		if err != nil {
			c.t.Fatalf("%v in %x", err, b)
		}
		if again := mustMarshal(c.t, m); !bytes.Equal(again, b) {
			c.t.Errorf("%v written again:\n%x, want\n%x", m.MessageType(), again, b)
		}
		echo, ok := m.(*EchoRequest)
		if !ok {
			return m
		}
		if _, err := c.conn.Write(mustMarshal(c.t, &EchoReply{Header: echo.Header, Data: echo.Data})); err != nil {
			c.t.Fatalf("send an echo: %v", err)
		}
	}
}

// request sends a message and returns the answer, which is of type T.
func request[T Message](c *controller, m Message) T {
	c.t.Helper()
	xid := c.send(m)
	for {
		got := c.next()
		if got.header().XID != xid {
			c.unread = append(c.unread, got)
			continue
		}
		answer, ok := got.(T)
		if !ok {
			c.t.Fatalf("asked with %s and got %s", Format(m, false), Format(got, false))
		}
		return answer
	}
}

// event waits for a message that the switch sends of itself.
func event[T Message](c *controller) T {
	c.t.Helper()
	for i, m := range c.unread {
		if got, ok := m.(T); ok {
			c.unread = append(c.unread[:i], c.unread[i+1:]...)
			return got
		}
	}
	for {
		m := c.next()
		if got, ok := m.(T); ok {
			return got
		}
		c.unread = append(c.unread, m)
	}
}

// multiparts returns the bodies of all parts of an answer.
func multiparts[T ReplyBody](c *controller, body RequestBody) []T {
	c.t.Helper()
	reply := request[*MultipartReply](c, &MultipartRequest{Body: body})
	var bodies []T
	for {
		got, ok := reply.Body.(T)
		if !ok {
			c.t.Fatalf("asked for %v and got %s", body.MultipartType(), Format(reply, false))
		}
		bodies = append(bodies, got)
		if reply.Flags&OFPMPF_REPLY_MORE == 0 {
			return bodies
		}
		reply = event[*MultipartReply](c)
	}
}

// done waits until the switch has done everything, without an error.
func (c *controller) done() {
	c.t.Helper()
	request[*BarrierReply](c, &BarrierRequest{})
	for _, m := range c.unread {
		if _, bad := m.(*ErrorMessage); bad {
			c.t.Errorf("the switch says %s", Format(m, false))
		}
	}
}

// TestOpenVSwitch is the controller of a real switch: it must understand what is
// written here, and say nothing that cannot be read.
func TestOpenVSwitch(t *testing.T) {
	s, listener := startOpenVSwitch(t)
	_ = listener.SetDeadline(time.Now().Add(20 * time.Second))
	conn, err := listener.Accept()
	if err != nil {
		t.Fatalf("the switch does not connect: %v", err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	c := &controller{t: t, conn: conn, reader: NewReader(bufio.NewReader(conn))}

	c.send(NewHello())
	if hello := event[*Hello](c); !hello.Speaks(Version) {
		t.Fatalf("the switch speaks no OpenFlow 1.3: %s", Format(hello, false))
	}
	if features := request[*FeaturesReply](c, &FeaturesRequest{}); features.DatapathID != 0xab || features.Capabilities&OFPC_QUEUE_STATS == 0 {
		t.Errorf("features: %s", Format(features, false))
	}
	c.send(&SetConfig{SwitchConfig: SwitchConfig{MissSendLen: OFPCML_NO_BUFFER}})
	if config := request[*GetConfigReply](c, &GetConfigRequest{}); config.MissSendLen != OFPCML_NO_BUFFER {
		t.Errorf("config: %s", Format(config, false))
	}
	role := RoleState{Role: OFPCR_ROLE_MASTER, GenerationID: 7}
	if got := request[*RoleReply](c, &RoleRequest{RoleState: role}); got.RoleState != role {
		t.Errorf("role: %s", Format(got, false))
	}
	async := AsyncConfig{[2]uint32{7, 0}, [2]uint32{7, 7}, [2]uint32{15, 0}}
	c.send(&SetAsync{AsyncConfig: async})
	if got := request[*GetAsyncReply](c, &GetAsyncRequest{}); got.AsyncConfig != async {
		t.Errorf("async: %s", Format(got, false))
	}
	if got := request[*EchoReply](c, &EchoRequest{Data: []byte("weir")}); string(got.Data) != "weir" {
		t.Errorf("echo: %s", Format(got, false))
	}
	flows(c, s)
	groupsAndMeters(c)
	statistics(c)
	packets(c)

	s.vsctl("del-port", "br0", "p2")
	for {
		if status := event[*PortStatus](c); status.Reason == OFPPR_DELETE {
			if status.Desc.Name != "p2" {
				t.Errorf("port status: %s", Format(status, false))
			}
			break
		}
	}
}

// flows adds a flow, sees it as the switch does, and removes it.
func flows(c *controller, s *openVSwitch) {
	flow := FlowMod{
		Cookie: 0xfeedface, IdleTimeout: 100, Priority: 1000, BufferID: OFP_NO_BUFFER, OutPort: OFPP_ANY, OutGroup: OFPG_ANY,
		Flags: OFPFF_SEND_FLOW_REM,
		Match: Match{[]OXM{
			NewOXMNumber(OFPXMT_OFB_IN_PORT, 2),
			NewOXMNumber(OFPXMT_OFB_ETH_TYPE, 0x0800),
			NewOXM(OFPXMT_OFB_IPV4_DST, []byte{198, 18, 0, 0}, []byte{255, 255, 255, 0}),
			NewOXMNumber(OFPXMT_OFB_IP_PROTO, 17),
			NewOXMNumber(OFPXMT_OFB_UDP_DST, 5004),
		}},
		Instructions: []Instruction{&InstructionActions{OFPIT_APPLY_ACTIONS, []Action{
			&ActionSetField{NewOXMNumber(OFPXMT_OFB_IP_DSCP, 46)}, &ActionSetQueue{QueueID: 1}, &ActionOutput{Port: 1},
		}}},
	}
	c.send(&flow)
	c.done()
	dump := s.do("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", "unix:"+s.path("br0.mgmt"))
	for _, want := range []string{"cookie=0xfeedface", "idle_timeout=100", "priority=1000", "udp", "nw_dst=198.18.0.0/24", "tp_dst=5004", "set_queue:1"} {
		if !strings.Contains(dump, want) {
			c.t.Errorf("ovs-ofctl shows no %s: %s", want, dump)
		}
	}
	stats := *multiparts[*FlowStatsReply](c, &FlowStatsRequest{EveryFlow()})[0]
	if len(stats) != 1 || stats[0].Cookie != flow.Cookie || stats[0].Priority != 1000 || stats[0].Flags != flow.Flags ||
		!sameFields(stats[0].Match, flow.Match) || !reflect.DeepEqual(stats[0].Instructions, flow.Instructions) {
		c.t.Errorf("flow stats: %+v, want %s", stats, Format(&flow, false))
	}
	if sum := multiparts[*AggregateStats](c, &AggregateStatsRequest{EveryFlow()})[0]; sum.FlowCount != 1 {
		c.t.Errorf("aggregate: %+v", sum)
	}

	wrong := flow
	wrong.Instructions = []Instruction{&InstructionActions{OFPIT_APPLY_ACTIONS, []Action{&ActionOutput{Port: 70000}}}} // it has 16 bits for ports
	if bad := request[*ErrorMessage](c, &wrong); bad.ErrorType != OFPET_BAD_ACTION || BadActionCode(bad.Code) != OFPBAC_BAD_OUT_PORT {
		c.t.Errorf("port 70000: %s", Format(bad, false))
	}

	flow.Command = OFPFC_DELETE_STRICT
	c.send(&flow)
	if gone := event[*FlowRemoved](c); gone.Reason != OFPRR_DELETE || gone.Cookie != flow.Cookie || !sameFields(gone.Match, flow.Match) {
		c.t.Errorf("flow removed: %s", Format(gone, false))
	}
	c.done()
}

// sameFields tells whether two matches are the same, in any order.
func sameFields(a, b Match) bool {
	for _, x := range a.Fields {
		if y := b.Field(x.Field); y == nil || !reflect.DeepEqual(x, *y) {
			return false
		}
	}
	return len(a.Fields) == len(b.Fields)
}

func groupsAndMeters(c *controller) {
	buckets := []Bucket{
		{Weight: 1, WatchPort: OFPP_ANY, WatchGroup: OFPG_ANY, Actions: []Action{&ActionOutput{Port: 1}}},
		{Weight: 2, WatchPort: OFPP_ANY, WatchGroup: OFPG_ANY, Actions: []Action{&ActionOutput{Port: 2}}},
	}
	c.send(&GroupMod{Command: OFPGC_ADD, GroupType: OFPGT_SELECT, GroupID: 9, Buckets: buckets})
	bands := []MeterBand{{Type: OFPMBT_DROP, Rate: 1000, BurstSize: 100}}
	c.send(&MeterMod{Command: OFPMC_ADD, Flags: OFPMF_KBPS | OFPMF_BURST | OFPMF_STATS, MeterID: 3, Bands: bands})
	c.done()

	if got, want := multiparts[*GroupDescReply](c, &GroupDescRequest{})[0], (&GroupDescReply{{OFPGT_SELECT, 9, buckets}}); !reflect.DeepEqual(got, want) {
		c.t.Errorf("groups: %+v, want %+v", got, want)
	}
	if got := *multiparts[*GroupStatsReply](c, &GroupStatsRequest{GroupID: OFPG_ALL})[0]; len(got) != 1 || len(got[0].BucketStats) != 2 {
		c.t.Errorf("group stats: %+v", got)
	}
	if got := multiparts[*GroupFeatures](c, &GroupFeaturesRequest{})[0]; got.Types&(1<<OFPGT_SELECT) == 0 {
		c.t.Errorf("group features: %+v", got)
	}
	if got := *multiparts[*MeterConfigReply](c, &MeterConfigRequest{MeterID: OFPM_ALL})[0]; len(got) != 1 || !reflect.DeepEqual(got[0].Bands, bands) {
		c.t.Errorf("meters: %+v", got)
	}
	if got := *multiparts[*MeterStatsReply](c, &MeterStatsRequest{MeterID: 3})[0]; len(got) != 1 || got[0].MeterID != 3 || len(got[0].BandStats) != 1 {
		c.t.Errorf("meter stats: %+v", got)
	}
	if got := multiparts[*MeterFeatures](c, &MeterFeaturesRequest{})[0]; got.BandTypes&(1<<OFPMBT_DROP) == 0 || got.MaxBands == 0 {
		c.t.Errorf("meter features: %+v", got)
	}
}

func statistics(c *controller) {
	if got := multiparts[*Desc](c, &DescRequest{})[0]; !strings.Contains(got.HwDesc, "Open vSwitch") {
		c.t.Errorf("description: %+v", got)
	}
	names := map[string]bool{}
	for _, p := range *multiparts[*PortDescReply](c, &PortDescRequest{})[0] {
		names[p.Name] = true
	}
	if want := map[string]bool{"p1": true, "p2": true, "br0": true}; !reflect.DeepEqual(names, want) {
		c.t.Errorf("ports: %v, want %v", names, want)
	}
	if got := *multiparts[*PortStatsReply](c, &PortStatsRequest{PortNo: OFPP_ANY})[0]; len(got) != 3 {
		c.t.Errorf("port stats: %+v", got)
	}
	if got := *multiparts[*QueueStatsReply](c, &QueueStatsRequest{PortNo: 1, QueueID: OFPQ_ALL})[0]; len(got) != 2 {
		c.t.Errorf("queue stats: %+v", got)
	}
	if got := request[*QueueGetConfigReply](c, &QueueGetConfigRequest{Port: 1}); len(got.Queues) != 2 {
		c.t.Errorf("queues: %s", Format(got, false))
	}
	tables := 0
	for _, part := range multiparts[*TableFeaturesReply](c, new(TableFeaturesRequest)) {
		tables += len(*part)
	}
	if tables != 254 {
		c.t.Errorf("features of %d tables, want 254", tables)
	}
	if got := *multiparts[*TableStatsReply](c, &TableStatsRequest{})[0]; len(got) != 254 {
		c.t.Errorf("stats of %d tables, want 254", len(got))
	}
}

// packets sends a packet through the switch and back.
func packets(c *controller) {
	c.send(&PortMod{PortNo: 2, Config: OFPPC_NO_FWD, Mask: OFPPC_NO_FWD, HWAddr: portAddress(c, 2)})
	c.done()
	frame := append([]byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5}, make([]byte, 46)...)
	c.send(&PacketOut{BufferID: OFP_NO_BUFFER, InPort: 1, Data: frame,
		Actions: []Action{&ActionOutput{Port: OFPP_CONTROLLER, MaxLen: OFPCML_NO_BUFFER}}})
	in := event[*PacketIn](c)
	if port := in.Match.Field(OFPXMT_OFB_IN_PORT); !bytes.Equal(in.Data, frame) || in.Reason != OFPR_ACTION || port == nil || port.Number() != 1 {
		c.t.Errorf("packet in: %s", Format(in, false))
	}
}

func portAddress(c *controller, port Port) MAC {
	for _, p := range *multiparts[*PortDescReply](c, &PortDescRequest{})[0] {
		if p.PortNo == port {
			return p.HWAddr
		}
	}
	c.t.Fatalf("the switch has no port %v", port)
	return MAC{}
}
