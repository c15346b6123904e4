// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Puts every packet into its container's class, at the egress hook of the
 * uplink, before the scheduler.
 *
 *  1. Whose packet is it? The tag that veth.bpf.c left in queue_mapping.
 *     No tag: the host's.
 *  2. Is it control traffic? Then it goes to a class of its own, which is
 *     served first and cannot be starved.
 *  3. The class goes into skb->priority, which HTB takes as the class without
 *     running any filter (net/sched/sch_htb.c, htb_classify).
 *  4. What was offered is counted for each container: the control loop needs
 *     the demand, which a queue that drops cannot tell.
 *
 * queue_mapping is cleared, or it would choose the card's transmit queue.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "control.h"
#include "intf.h"

/* The major of the HTB qdisc, in the upper half of every classid. */
const volatile __u32 htb_major = 0;

/*
 * Mapped into the agent's memory: reading all counters takes no system call.
 * Written here only.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_activity);
} activities SEC(".maps");

/* Makes the constants of intf.h known to the Go side (BTF keeps what is used). */
const enum weir_number *weir_number_btf __attribute__((unused));
const enum weir_tag *weir_tag_btf __attribute__((unused));

SEC("tc")
int weir_uplink(struct __sk_buff *skb)
{
	__u32 number = WEIR_NUMBER_HOST;
	__u32 tag = skb->queue_mapping;
	struct weir_activity *activity;

	if ((tag & ~(__u32)WEIR_TAG_MASK) == WEIR_TAG_BASE) {
		number = tag & WEIR_TAG_MASK;
		skb->queue_mapping = 0;
	}

	if (weir_is_control(skb, number != WEIR_NUMBER_HOST))
		number = WEIR_NUMBER_CONTROL;

	skb->priority = htb_major << 16 | number;

	activity = bpf_map_lookup_elem(&activities, &number);
	if (activity)
		__sync_fetch_and_add(&activity->offered_bytes, skb->wire_len);

	/* Not a verdict: programs of others at this hook still run. */
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
