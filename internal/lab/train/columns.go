package train

import (
	"fmt"

	"github.com/weir-project/weir/internal/apps/flow"
)

// column is one numeric column.
type column struct {
	name     string
	required bool // no flow can do without it
	min, max float64
}

var columns = makeColumns()

func makeColumns() [flow.NumColumns]column {
	// Clocks of captures jump, so times have a wide range.
	const long = 1 << 60
	c := [flow.NumColumns]column{
		flow.Proto:        {"proto", true, 0, 255},
		flow.SrcPort:      {"src_port", false, 0, 65535},
		flow.DstPort:      {"dst_port", true, 0, 65535},
		flow.SYN:          {"syn", false, 0, 1},
		flow.MSSClient:    {"mss_c2s", false, 0, 65535},
		flow.WindowClient: {"win_c2s", false, 0, 65535},
		flow.WScaleClient: {"wscale_c2s", false, -1, 255},
		flow.TTLClient:    {"ttl_c2s", false, -1, 255},
		flow.SYNACK:       {"synack", false, 0, 1},
		flow.MSSServer:    {"mss_s2c", false, 0, 65535},
		flow.WindowServer: {"win_s2c", false, -1, 65535},
		flow.WScaleServer: {"wscale_s2c", false, -1, 255},
		flow.TTLServer:    {"ttl_s2c", false, -1, 255},
		flow.HandshakeUS:  {"hs_rtt_us", false, -long, long},
		flow.PktsClient:   {"pkts_c2s", false, 0, long},
		flow.PktsServer:   {"pkts_s2c", false, 0, long},
		flow.BytesClient:  {"bytes_c2s", false, 0, long},
		flow.BytesServer:  {"bytes_s2c", false, 0, long},
	}
	for i := range flow.SidePackets {
		for first, side := range map[int]string{flow.ClientLen1: "c2s", flow.ServerLen1: "s2c"} {
			c[first+2*i] = column{fmt.Sprintf("%s_len%d", side, i+1), false, -1, 65535}
			c[first+2*i+1] = column{fmt.Sprintf("%s_t%d_us", side, i+1), false, -long, long}
		}
	}
	for i := range flow.SeqPackets {
		c[flow.SeqLen1+2*i] = column{fmt.Sprintf("seq_len%d", i+1), false, -65535, 65535}
		c[flow.SeqLen1+2*i+1] = column{fmt.Sprintf("seq_iat%d_us", i+1), false, -long, long}
	}
	return c
}
