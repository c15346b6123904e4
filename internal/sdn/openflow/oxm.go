package openflow

// OXMField is a field of OFPXMC_OPENFLOW_BASIC (oxm_ofb_match_fields), section
// 7.2.3.7, or of another class.
type OXMField uint8

// Fields of OFPXMC_OPENFLOW_BASIC.
const (
	OFPXMT_OFB_IN_PORT OXMField = iota
	OFPXMT_OFB_IN_PHY_PORT
	OFPXMT_OFB_METADATA
	OFPXMT_OFB_ETH_DST
	OFPXMT_OFB_ETH_SRC
	OFPXMT_OFB_ETH_TYPE
	OFPXMT_OFB_VLAN_VID
	OFPXMT_OFB_VLAN_PCP
	OFPXMT_OFB_IP_DSCP
	OFPXMT_OFB_IP_ECN
	OFPXMT_OFB_IP_PROTO
	OFPXMT_OFB_IPV4_SRC
	OFPXMT_OFB_IPV4_DST
	OFPXMT_OFB_TCP_SRC
	OFPXMT_OFB_TCP_DST
	OFPXMT_OFB_UDP_SRC
	OFPXMT_OFB_UDP_DST
	OFPXMT_OFB_SCTP_SRC
	OFPXMT_OFB_SCTP_DST
	OFPXMT_OFB_ICMPV4_TYPE
	OFPXMT_OFB_ICMPV4_CODE
	OFPXMT_OFB_ARP_OP
	OFPXMT_OFB_ARP_SPA
	OFPXMT_OFB_ARP_TPA
	OFPXMT_OFB_ARP_SHA
	OFPXMT_OFB_ARP_THA
	OFPXMT_OFB_IPV6_SRC
	OFPXMT_OFB_IPV6_DST
	OFPXMT_OFB_IPV6_FLABEL
	OFPXMT_OFB_ICMPV6_TYPE
	OFPXMT_OFB_ICMPV6_CODE
	OFPXMT_OFB_IPV6_ND_TARGET
	OFPXMT_OFB_IPV6_ND_SLL
	OFPXMT_OFB_IPV6_ND_TLL
	OFPXMT_OFB_MPLS_LABEL
	OFPXMT_OFB_MPLS_TC
	OFPXMT_OFB_MPLS_BOS
	OFPXMT_OFB_PBB_ISID
	OFPXMT_OFB_TUNNEL_ID
	OFPXMT_OFB_IPV6_EXTHDR
)

// Len is how many bytes a value of a field of OFPXMC_OPENFLOW_BASIC has.
func (f OXMField) Len() int {
	if int(f) >= len(oxmFields) {
		return 0
	}
	return oxmFields[f].len()
}

// oxmKind is how a value is written.
type oxmKind uint8

const (
	oxmNumber oxmKind = iota
	oxmPort
	oxmMAC
	oxmIPv4
	oxmIPv6
)

type oxmInfo struct {
	name string
	bits int
	kind oxmKind
}

// oxmFields are all fields of OFPXMC_OPENFLOW_BASIC. Table 12.
var oxmFields = [...]oxmInfo{
	OFPXMT_OFB_IN_PORT:        {"in_port", 32, oxmPort},
	OFPXMT_OFB_IN_PHY_PORT:    {"in_phy_port", 32, oxmPort},
	OFPXMT_OFB_METADATA:       {"metadata", 64, oxmNumber},
	OFPXMT_OFB_ETH_DST:        {"eth_dst", 48, oxmMAC},
	OFPXMT_OFB_ETH_SRC:        {"eth_src", 48, oxmMAC},
	OFPXMT_OFB_ETH_TYPE:       {"eth_type", 16, oxmNumber},
	OFPXMT_OFB_VLAN_VID:       {"vlan_vid", 13, oxmNumber},
	OFPXMT_OFB_VLAN_PCP:       {"vlan_pcp", 3, oxmNumber},
	OFPXMT_OFB_IP_DSCP:        {"ip_dscp", 6, oxmNumber},
	OFPXMT_OFB_IP_ECN:         {"ip_ecn", 2, oxmNumber},
	OFPXMT_OFB_IP_PROTO:       {"ip_proto", 8, oxmNumber},
	OFPXMT_OFB_IPV4_SRC:       {"ipv4_src", 32, oxmIPv4},
	OFPXMT_OFB_IPV4_DST:       {"ipv4_dst", 32, oxmIPv4},
	OFPXMT_OFB_TCP_SRC:        {"tcp_src", 16, oxmNumber},
	OFPXMT_OFB_TCP_DST:        {"tcp_dst", 16, oxmNumber},
	OFPXMT_OFB_UDP_SRC:        {"udp_src", 16, oxmNumber},
	OFPXMT_OFB_UDP_DST:        {"udp_dst", 16, oxmNumber},
	OFPXMT_OFB_SCTP_SRC:       {"sctp_src", 16, oxmNumber},
	OFPXMT_OFB_SCTP_DST:       {"sctp_dst", 16, oxmNumber},
	OFPXMT_OFB_ICMPV4_TYPE:    {"icmpv4_type", 8, oxmNumber},
	OFPXMT_OFB_ICMPV4_CODE:    {"icmpv4_code", 8, oxmNumber},
	OFPXMT_OFB_ARP_OP:         {"arp_op", 16, oxmNumber},
	OFPXMT_OFB_ARP_SPA:        {"arp_spa", 32, oxmIPv4},
	OFPXMT_OFB_ARP_TPA:        {"arp_tpa", 32, oxmIPv4},
	OFPXMT_OFB_ARP_SHA:        {"arp_sha", 48, oxmMAC},
	OFPXMT_OFB_ARP_THA:        {"arp_tha", 48, oxmMAC},
	OFPXMT_OFB_IPV6_SRC:       {"ipv6_src", 128, oxmIPv6},
	OFPXMT_OFB_IPV6_DST:       {"ipv6_dst", 128, oxmIPv6},
	OFPXMT_OFB_IPV6_FLABEL:    {"ipv6_flabel", 20, oxmNumber},
	OFPXMT_OFB_ICMPV6_TYPE:    {"icmpv6_type", 8, oxmNumber},
	OFPXMT_OFB_ICMPV6_CODE:    {"icmpv6_code", 8, oxmNumber},
	OFPXMT_OFB_IPV6_ND_TARGET: {"ipv6_nd_target", 128, oxmIPv6},
	OFPXMT_OFB_IPV6_ND_SLL:    {"ipv6_nd_sll", 48, oxmMAC},
	OFPXMT_OFB_IPV6_ND_TLL:    {"ipv6_nd_tll", 48, oxmMAC},
	OFPXMT_OFB_MPLS_LABEL:     {"mpls_label", 20, oxmNumber},
	OFPXMT_OFB_MPLS_TC:        {"mpls_tc", 3, oxmNumber},
	OFPXMT_OFB_MPLS_BOS:       {"mpls_bos", 1, oxmNumber},
	OFPXMT_OFB_PBB_ISID:       {"pbb_isid", 24, oxmNumber},
	OFPXMT_OFB_TUNNEL_ID:      {"tunnel_id", 64, oxmNumber},
	OFPXMT_OFB_IPV6_EXTHDR:    {"ipv6_exthdr", 9, oxmNumber},
}

// len is the length of a value: 20 bits are in a field of 32, others in as many
// bytes as they take.
func (i *oxmInfo) len() int {
	if i.bits == 20 {
		return 4
	}
	return (i.bits + 7) / 8
}

// format writes a value; one of a field that is not known as its bytes.
func (i *oxmInfo) format(c *coder, b []byte) {
	switch {
	case i == nil || len(b) != i.len():
		c.formatBytes(b)
	case i.kind == oxmPort:
		c.formatNumber(Port(bigEndian(b)), bigEndian(b))
	case i.kind == oxmMAC:
		c.formatString(formatMAC(b))
	case i.kind == oxmIPv4:
		c.formatString(formatIPv4(b))
	case i.kind == oxmIPv6:
		c.formatString(formatIPv6(b))
	default:
		c.formatNumber(nil, bigEndian(b))
	}
}
