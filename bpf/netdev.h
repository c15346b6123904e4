/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What is used of the kernel's network devices and packets; offsets are corrected
 * at load time.
 */
#ifndef WEIR_NETDEV_H
#define WEIR_NETDEV_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

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

struct rtnl_link_ops {
	const char *kind;
};

struct qdisc_skb_head {
	__u32 qlen;
};

struct Qdisc {
	struct qdisc_skb_head q;
};

struct net_device {
	int ifindex;
	possible_net_t nd_net;
	const struct rtnl_link_ops *rtnl_link_ops;
	struct Qdisc *qdisc;
};

struct sk_buff {
	struct net_device *dev;
	__u32 priority;
	__u32 hash;
	char cb[48];
	unsigned char *data;
};
#pragma clang attribute pop

/* The inode of the network namespace that a device is in. */
static __always_inline __u32 weir_netns(const struct net_device *dev)
{
	return dev->nd_net.net->ns.inum;
}

#endif
