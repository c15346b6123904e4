// Why, in words: why a container gets what it gets, and why there is nothing to see.

import type { ClassShare, Container, Event, Share, Snapshot } from "./api";
import { exactRate, rate } from "./format";
import { verbOf } from "./received";

// Measured rates wobble: so much is the same.
const alike = 0.05;

// why says why a container gets what it gets at an uplink, what is wrong with it, and what of its EF is
// above its maximum.
export function why(c: Container, share: Share | undefined): string {
  return [c.reason, c.state === "rejected" ? "" : gets(c, share), held(share?.classes ?? [])].filter(Boolean).join("; ");
}

// held says, as \`weir ps\` does, that EF above its maximum is served as BE.
function held(classes: ClassShare[]): string {
  const ef = classes.find((s) => s.held);
  if (!ef) return "";
  return ef.excess_bps > 0
    ? `${rate(ef.excess_bps)} of its EF is above ${rate(ef.max_bps)} and served as BE`
    : `some of its EF was above ${rate(ef.max_bps)} and served as BE`;
}

function gets(c: Container, share: Share | undefined): string {
  if (!share) return c.reason !== "" ? "" : "it has no traffic here: its network is not on this uplink";
  const { max_bps: max } = c.policy;
  if (!share.wants_more) return share.rate_bps === 0 ? verbOf(share.uplink) + " nothing" : "gets all it wants";
  if (max > 0 && share.rate_bps > max * (1 - alike)) return "wants more, and is at its maximum";
  if (share.rate_bps > share.entitled_bps * (1 + alike)) return "wants more; has its share and what others leave";
  if (share.rate_bps < share.entitled_bps * (1 - 2 * alike)) return "wants more; has only just begun, or its senders are slow";
  return "wants more; has its share, the others want theirs";
}

// wants says what a container would send if it could. How much more than it gets is unknown
// where packets wait.
export function wants(share: Share): string {
  return share.wants_more ? "> " + rate(share.rate_bps) : rate(share.wanted_bps);
}

export function noContainers(seen: Snapshot): string {
  const sources = seen.status.sources ?? [];
  const lost = sources.filter((s) => !s.connected);
  const there = sources.filter((s) => s.connected).map((s) => s.name);
  const parts: string[] = [];
  if (there.length > 0) parts.push(`No container runs, says ${there.join(" and ")}. One that starts appears here within a second.`);
  for (const s of lost) parts.push(`${s.name} cannot be asked for its containers: ${s.reason || "no reason given"}.`);
  if (sources.length === 0)
    parts.push("The agent watches no container engine (docker: none, podman: none) and its configuration file names no containers.");
  return parts.join(" ");
}

export function policyText(p: NonNullable<Event["policy"]>): string {
  const parts = ["weight " + p.weight];
  if (p.min_bps) parts.push("min " + exactRate(p.min_bps));
  if (p.max_bps) parts.push("max " + exactRate(p.max_bps));
  if (p.priority) parts.push("priority " + p.priority);
  if (p.latency_ms) parts.push("latency " + p.latency_ms + "ms");
  if (p.class) parts.push("class " + p.class);
  return parts.join(", ");
}
