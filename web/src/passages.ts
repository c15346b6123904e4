// The way of flows through switches, and the queue at each, where weir sdn run has a page on
// this host.

import type { Flow } from "./api";
import { type SDN, type SDNFlow, network, sdnFlows } from "./sdnapi";

export const short = (dpid: string) => dpid.replace(/^0+(?=.)/, "");

// ends are protocol, source and destination of a flow of a switch.
function ends(f: SDNFlow): { protocol: string; from: string; to: string } {
  const [protocol = "", from = "", , to = ""] = f.flow.split(" ");
  return { protocol, from, to };
}

const port = (end: string) => end.slice(end.lastIndexOf(":"));

// found is a flow of switches that goes from one end to another. NAT changes one end: then it is the
// only one of the other.
function found(list: SDNFlow[], protocol: string, from: string, to: string): SDNFlow | undefined {
  const same = list.filter((f) => ends(f).protocol === protocol);
  const exact = same.find((f) => ends(f).from === from && ends(f).to === to);
  if (exact) return exact;
  const alike = same.filter((f) => {
    const is = ends(f);
    return (is.to === to && port(is.from) === port(from)) || (is.from === from && port(is.to) === port(to));
  });
  return alike.length === 1 ? alike[0] : undefined;
}

// queues are those that a flow waits in, one a switch.
function queues(seen: SDN, f: SDNFlow): string {
  return f.path.map((hop) => {
    const out = seen.switches.find((s) => s.dpid === hop.dpid)?.ports.find((p) => p.number === hop.out);
    const queue = out?.queues?.find((q) => q.class === f.class);
    return `${short(hop.dpid)}:${out?.name ?? hop.out} ${queue && out?.state === "ok" ? `queue ${queue.id}` : "no queue"}`;
  }).join(", ");
}

// marked is the queue at each switch of what has the mark of a class. All ports of a switch that have
// queues have the same one for a class.
function marked(seen: SDN, level: string): string {
  const at = seen.switches.filter((s) => s.connected).map((s) => {
    const queue = s.ports.filter((p) => p.state === "ok").flatMap((p) => p.queues ?? []).find((q) => q.class === level);
    return { dpid: short(s.dpid), has: queue ? `queue ${queue.id}` : "no queue" };
  });
  const same = new Set(at.map((s) => s.has)).size === 1;
  return `by its mark, if its port is trusted: ${level.toUpperCase()} ${same ? at[0]?.has + " at each switch" : at.map((s) => `${s.dpid} ${s.has}`).join(", ")}`;
}

// passages are the ways of an agent's flows, in its order: the class at the switches, and the queue at
// the port of each that a packet leaves by, there and back. A flow of a trusted port has no entry at
// switches: its queue is that of the mark that the agent (marks), or its sender, gave it.
export async function passages(flows: Flow[], marks: boolean): Promise<string[]> {
  if (flows.length === 0) return [];
  const [seen, list] = await Promise.all([network(), sdnFlows(flows.flatMap((f) => [f.initiator, f.responder]))]);
  const trusts = seen.switches.some((s) => s.ports.some((p) => p.trust && !p.trust.refused));
  return flows.map((f) => {
    const there = found(list, f.protocol, f.initiator, f.responder);
    const back = found(list, f.protocol, f.responder, f.initiator);
    const ways = [there && `→ ${there.class.toUpperCase()} ${queues(seen, there)}`, back && `← ${back.class.toUpperCase()} ${queues(seen, back)}`].filter(Boolean);
    if (ways.length > 0 || !trusts) return ways.join("; ") || "not there";
    return marks || f.by_dscp ? marked(seen, f.class || "be") : "by its mark (DSCP), or not there";
  });
}
