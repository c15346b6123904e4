// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Measures how long packets wait at an uplink: from its egress hook, where
 * they get a stamp (delay.h), to the moment the device takes them from the
 * root of its queues. The class in their priority says whose they are.
 *
 * The tracepoint is qdisc_dequeue and not net_dev_start_xmit: it is passed by
 * devices with queues only, not by every veth and bridge on a packet's way. A
 * packet that the driver gave back is seen twice. Of packets that are taken in
 * one go (bulk dequeue) the first is seen.
 */
#include <linux/bpf.h>
#include <stddef.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "delay.h"
#include "intf.h"

/* The uplink: its index, and the inode of its network namespace. */
const volatile __u32 uplink_ifindex = 0;
const volatile __u32 uplink_netns = 0;
/* The major of the scheduler's classes. */
const volatile __u32 htb_major = 0;

/* Mapped into the agent's memory. Written here only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WEIR_NUMBERS);
	__type(key, __u32);
	__type(value, struct weir_delays);
} delays SEC(".maps");

/* Makes the constants of intf.h known to the Go side (BTF keeps what is used). */
const enum weir_delay *weir_delay_btf __attribute__((unused));

/* What is used of the kernel's types; offsets are corrected at load time. */
#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)
struct ns_common {
	unsigned int inum;
};

struct net {
	struct ns_common ns;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
};

struct netdev_queue {
	struct net_device *dev;
};

struct Qdisc;

struct sk_buff {
	__u32 priority;
	char cb[48];
};

struct qdisc_skb_cb {
	unsigned char data[20];
};
#pragma clang attribute pop

static __always_inline __u32 log2_floor(__u64 v)
{
	__u32 log = 0;

	if (v >> 32) {
		v >>= 32;
		log += 32;
	}
	if (v >> 16) {
		v >>= 16;
		log += 16;
	}
	if (v >> 8) {
		v >>= 8;
		log += 8;
	}
	if (v >> 4) {
		v >>= 4;
		log += 4;
	}
	if (v >> 2) {
		v >>= 2;
		log += 2;
	}
	return log + (v >> 1);
}

static __always_inline __u32 bucket_of(__u64 delay_ns)
{
	__u64 units = delay_ns >> WEIR_DELAY_UNIT_SHIFT;
	__u32 log, step, bucket;

	if (units < WEIR_DELAY_STEPS)
		return units;
	log = log2_floor(units);
	step = units >> (log - WEIR_DELAY_STEPS_SHIFT) & (WEIR_DELAY_STEPS - 1);
	bucket = (log - WEIR_DELAY_STEPS_SHIFT + 1) * WEIR_DELAY_STEPS + step;
	return bucket < WEIR_DELAY_BUCKETS ? bucket : WEIR_DELAY_BUCKETS - 1;
}

SEC("tp_btf/qdisc_dequeue")
int BPF_PROG(weir_dequeue, struct Qdisc *qdisc, const struct netdev_queue *txq,
	     int packets, struct sk_buff *skb)
{
	__u32 priority, number, bucket;
	struct weir_delays *histogram;
	struct weir_stamp stamp;
	__u64 now, then;
	__u32 *count;

	if (txq->dev->ifindex != uplink_ifindex)
		return 0;
	/*
	 * NULL when the queues are empty. Before Linux 6.13 (commit
	 * cb4158ce8ec8) the verifier takes arguments for not NULL and removes
	 * this check: so skb is only read through helpers, which NULL fails.
	 */
	if (!skb)
		return 0;
	if (bpf_probe_read_kernel(&stamp, sizeof(stamp),
				  (void *)skb +
				  bpf_core_field_offset(struct sk_buff, cb) +
				  bpf_core_field_offset(struct qdisc_skb_cb, data) +
				  WEIR_STAMP_OFFSET))
		return 0;
	if ((stamp.magic_and_weight & ~WEIR_STAMP_WEIGHT_MASK) != WEIR_STAMP_MAGIC)
		return 0;
	if (txq->dev->nd_net.net->ns.inum != uplink_netns)
		return 0;
	if (bpf_probe_read_kernel(&priority, sizeof(priority), (void *)skb +
				  bpf_core_field_offset(struct sk_buff, priority)))
		return 0;
	if (priority >> 16 != htb_major)
		return 0;
	number = priority & 0xffff;
	histogram = bpf_map_lookup_elem(&delays, &number);
	if (!histogram)
		return 0;
	now = bpf_ktime_get_ns();
	then = (__u64)stamp.time_ns_high << 32 | stamp.time_ns_low;
	bucket = now > then ? bucket_of(now - then) : 0;
	/* The compiler knows that it is in range; the verifier has to see it. */
	asm volatile("" : "+r"(bucket));
	if (bucket >= WEIR_DELAY_BUCKETS)
		return 0;
	count = &histogram->packets[bucket];
	__sync_fetch_and_add(count, stamp.magic_and_weight & WEIR_STAMP_WEIGHT_MASK);
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
