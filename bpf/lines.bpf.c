// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Keeps lines of unprivileged processes from the socket for response times.
 *
 * Problem: every process of the network namespace can write to an abstract socket. What it
 * writes takes places of the socket's queue, which are few (net.unix.max_dgram_qlen), and
 * proxies do not wait for one.
 *
 * Method: a Unix socket runs its filter in the process that writes, and before it looks for a
 * place (net/unix/af_unix.c, unix_dgram_sendmsg). So the filter reads the user of that
 * process, as SCM_CREDENTIALS has it: in the first user namespace, whatever it is in its own.
 *
 * Limits: root's processes that are no proxies get through. The agent names them.
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)
typedef struct {
	unsigned int val;
} kuid_t;

struct cred {
	kuid_t uid;
};

struct task_struct {
	const struct cred *cred;
};
#pragma clang attribute pop

SEC("socket")
int weir_lines(struct __sk_buff *skb)
{
	const struct task_struct *writer = (void *)bpf_get_current_task();

	return BPF_CORE_READ(writer, cred, uid.val) ? 0 : skb->len;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
