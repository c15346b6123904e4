// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * What tap.bpf.c does, at the taps of containers whose traffic class is "auto": the
 * tag has the class of the packet's flow as well (flow.h). Here packets are as the
 * container made them: before NAT, before encapsulation.
 *
 * weir_back is at the other direction of the same device, where answers and what
 * others begin pass. It changes no packet: a flow that a peer began is
 * known by its first packet, and the second stage knows the answers' sizes.
 *
 * A container that is no "auto" has the program without all that.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "intf.h"
#include "known.h"
#include "tag.h"

/* As in tap.bpf.c, at the same places. */
const volatile __u32 container_number = WEIR_NUMBER_NONE;
const volatile __u32 tag_priority = 0;

/* Makes types known to the Go side (BTF keeps what is used). */
const enum weir_flow_kind *weir_flow_kind_btf __attribute__((unused));
const enum weir_flow_limit *weir_flow_limit_btf __attribute__((unused));
const enum weir_flow_tag *weir_flow_tag_btf __attribute__((unused));
const enum weir_flow_key *weir_flow_key_btf __attribute__((unused));
const enum weir_policer *weir_policer_btf __attribute__((unused));

SEC("tc")
int weir_tap(struct __sk_buff *skb)
{
	int class = weir_flow_class(skb, container_number, ETH_HLEN, 0);

	weir_tag(skb, container_number, class, tag_priority);
	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

SEC("tc")
int weir_back(struct __sk_buff *skb)
{
	weir_flow_class(skb, container_number, ETH_HLEN, 1);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
