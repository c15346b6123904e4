package flow

import "fmt"

// column is one numeric column.
type column struct {
	name     string
	required bool // no flow can do without it
	min, max float64
}

var columns = makeColumns()

func makeColumns() [NumColumns]column {
	// Clocks of captures jump, so times have a wide range.
	const long = 1 << 60
	c := [NumColumns]column{
		Proto:        {"proto", true, 0, 255},
		SrcPort:      {"src_port", false, 0, 65535},
		DstPort:      {"dst_port", true, 0, 65535},
		SYN:          {"syn", false, 0, 1},
		MSSClient:    {"mss_c2s", false, 0, 65535},
		WindowClient: {"win_c2s", false, 0, 65535},
		WScaleClient: {"wscale_c2s", false, -1, 255},
		TTLClient:    {"ttl_c2s", false, -1, 255},
		SYNACK:       {"synack", false, 0, 1},
		MSSServer:    {"mss_s2c", false, 0, 65535},
		WindowServer: {"win_s2c", false, -1, 65535},
		WScaleServer: {"wscale_s2c", false, -1, 255},
		TTLServer:    {"ttl_s2c", false, -1, 255},
		HandshakeUS:  {"hs_rtt_us", false, -long, long},
		PktsClient:   {"pkts_c2s", false, 0, long},
		PktsServer:   {"pkts_s2c", false, 0, long},
		BytesClient:  {"bytes_c2s", false, 0, long},
		BytesServer:  {"bytes_s2c", false, 0, long},
	}
	for i := range sidePackets {
		for first, side := range map[int]string{ClientLen1: "c2s", ServerLen1: "s2c"} {
			c[first+2*i] = column{fmt.Sprintf("%s_len%d", side, i+1), false, -1, 65535}
			c[first+2*i+1] = column{fmt.Sprintf("%s_t%d_us", side, i+1), false, -long, long}
		}
	}
	for i := range seqPackets {
		c[SeqLen1+2*i] = column{fmt.Sprintf("seq_len%d", i+1), false, -65535, 65535}
		c[SeqLen1+2*i+1] = column{fmt.Sprintf("seq_iat%d_us", i+1), false, -long, long}
	}
	return c
}
