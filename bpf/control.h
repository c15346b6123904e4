/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Recognises the traffic that keeps a link alive and must never wait behind
 * data: address resolution, neighbour and router discovery, group membership,
 * address configuration, link-layer protocols, routing hellos.
 */
#ifndef WEIR_CONTROL_H
#define WEIR_CONTROL_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define WEIR_ETH_P_LLDP 0x88cc

#define WEIR_IPPROTO_OSPF 89
#define WEIR_IPPROTO_VRRP 112

static __always_inline int weir_is_dhcp_port(__u16 port)
{
	return port == 67 || port == 68 || port == 546 || port == 547;
}

/* Types 133 to 137: router and neighbour discovery, redirect (RFC 4861). */
static __always_inline int weir_is_nd(__u8 icmp6_type)
{
	return icmp6_type >= 133 && icmp6_type <= 137;
}

/* Types 130 to 132 and 143: multicast listeners (RFC 2710, RFC 3810). */
static __always_inline int weir_is_mld(__u8 icmp6_type)
{
	return (icmp6_type >= 130 && icmp6_type <= 132) || icmp6_type == 143;
}

/* Kinds of control traffic, by who can make it. */
enum weir_control_kind {
	WEIR_CONTROL_NO = 0,
	/* ARP and neighbour discovery: the kernel, or a raw socket. */
	WEIR_CONTROL_NEIGHBOUR,
	/* DHCP: all programs that can open a UDP socket. */
	WEIR_CONTROL_DHCP,
	/* Group membership, routing hellos, link-layer protocols: as the first. */
	WEIR_CONTROL_PROTOCOL,
};

static __always_inline enum weir_control_kind weir_kind_if(int is, enum weir_control_kind kind)
{
	return is ? kind : WEIR_CONTROL_NO;
}

/*
 * weir_control_kind says what control traffic skb is. neighbour_only leaves all
 * but ARP and neighbour discovery out: what is not the host's own must not get
 * into this class dressed as DHCP or OSPF. Nor must anything as neighbour
 * discovery from behind a router, which takes one off the hop limit: below 255
 * it is void (RFC 4861, section 6.1).
 */
static __always_inline enum weir_control_kind
weir_control_kind(struct __sk_buff *skb, int neighbour_only)
{
	__u16 protocol = bpf_ntohs(skb->protocol);

	if (protocol == ETH_P_ARP)
		return WEIR_CONTROL_NEIGHBOUR;

	if (protocol == ETH_P_IPV6) {
		/* bytes 6 and 7: next header, hop limit; 40..: what follows */
		__u8 fixed[2], next, type, after;

		if (bpf_skb_load_bytes_relative(skb, 6, fixed, sizeof(fixed),
						BPF_HDR_START_NET))
			return 0;
		next = fixed[0];
		if (next == IPPROTO_ICMPV6) {
			if (bpf_skb_load_bytes_relative(skb, 40, &type,
							sizeof(type),
							BPF_HDR_START_NET))
				return 0;
			if (weir_is_nd(type))
				return weir_kind_if(fixed[1] == 255, WEIR_CONTROL_NEIGHBOUR);
			return weir_kind_if(!neighbour_only && weir_is_mld(type),
					    WEIR_CONTROL_PROTOCOL);
		}
		if (neighbour_only)
			return 0;
		if (next == IPPROTO_HOPOPTS) {
			/* MLD carries a router alert of 8 bytes before it. */
			if (bpf_skb_load_bytes_relative(skb, 40, &after,
							sizeof(after),
							BPF_HDR_START_NET) ||
			    bpf_skb_load_bytes_relative(skb, 48, &type,
							sizeof(type),
							BPF_HDR_START_NET))
				return 0;
			return weir_kind_if(after == IPPROTO_ICMPV6 && weir_is_mld(type),
					    WEIR_CONTROL_PROTOCOL);
		}
		if (next == IPPROTO_UDP) {
			__be16 dest;

			if (bpf_skb_load_bytes_relative(skb, 42, &dest,
							sizeof(dest),
							BPF_HDR_START_NET))
				return 0;
			return weir_kind_if(weir_is_dhcp_port(bpf_ntohs(dest)),
					    WEIR_CONTROL_DHCP);
		}
		return weir_kind_if(next == WEIR_IPPROTO_OSPF || next == WEIR_IPPROTO_VRRP,
				    WEIR_CONTROL_PROTOCOL);
	}

	if (neighbour_only)
		return 0;

	if (protocol == ETH_P_IP) {
		/* byte 9: protocol; DHCP has no IP options, so its UDP
		 * destination port is at byte 22
		 */
		__u8 proto;
		__be16 dest;

		if (bpf_skb_load_bytes_relative(skb, 9, &proto, sizeof(proto),
						BPF_HDR_START_NET))
			return 0;
		if (proto == IPPROTO_UDP) {
			if (bpf_skb_load_bytes_relative(skb, 22, &dest,
							sizeof(dest),
							BPF_HDR_START_NET))
				return 0;
			return weir_kind_if(weir_is_dhcp_port(bpf_ntohs(dest)),
					    WEIR_CONTROL_DHCP);
		}
		return weir_kind_if(proto == IPPROTO_IGMP || proto == WEIR_IPPROTO_OSPF ||
					    proto == WEIR_IPPROTO_VRRP,
				    WEIR_CONTROL_PROTOCOL);
	}

	return weir_kind_if(protocol == ETH_P_PAE || protocol == WEIR_ETH_P_LLDP ||
				    protocol == ETH_P_PPP_DISC || protocol == ETH_P_802_2,
			    WEIR_CONTROL_PROTOCOL);
}

#endif
