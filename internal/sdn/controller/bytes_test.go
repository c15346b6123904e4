package controller

import (
	"testing"
	"time"

	"github.com/weir-project/weir/internal/sdn/openflow"
)

// TestRepliesNotRead: a switch that asks and does not read is given up before
// what waits for it fills the memory.
func TestRepliesNotRead(t *testing.T) {
	c, address := start(t, func(o *Options) { o.EchoTimeout = 30 * time.Second }, nil)
	nc := dial(t, address)
	defer nc.Close()
	write := func(m openflow.Message) error {
		b, err := m.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		_, err = nc.Write(b)
		return err
	}
	_ = write(openflow.NewHello())
	_ = write(&openflow.FeaturesReply{DatapathID: 78, NTables: 1})
	_ = write(&openflow.MultipartReply{Body: &openflow.PortDescReply{{PortNo: 1}}})
	eventually(t, "a switch", func() bool { return c.connected(78) })
	data := make([]byte, 65000)
	for range 2000 { // 130 MB
		if write(&openflow.EchoRequest{Header: openflow.Header{XID: 5}, Data: data}) != nil {
			break
		}
	}
	eventually(t, "the end of the connection", func() bool { return c.counters.overflows.Load() == 1 && !c.connected(78) })
}
