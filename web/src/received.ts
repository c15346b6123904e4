// What an uplink receives, in the form of what it sends: the same plots, rows and details show both. No
// device has a space in its name.

import type { Container, Uplink } from "./api";

const suffix = " in";

export const isReceived = (uplink: string) => uplink.endsWith(suffix);

export const nameOfReceived = (uplink: string) => uplink + suffix;

export const deviceOf = (uplink: string) => (isReceived(uplink) ? uplink.slice(0, -suffix.length) : uplink);

// receivedBy is what an uplink receives, if that is shared. Its state is with what it sends.
export function receivedBy(u: Uplink): Uplink | undefined {
  const { in: received, ...rest } = u;
  return received && { ...rest, ...received, name: nameOfReceived(u.name), sent_bps: received.received_bps, state: "ok", reason: "" };
}

// receives is a container with what it receives in place of what it sends.
export function receives(c: Container): Container {
  const { in: received, ...rest } = c;
  const shares = (received?.shares ?? []).map((share) => ({ ...share, uplink: nameOfReceived(share.uplink) }));
  return { ...rest, ...received, shares, state: "", reason: "" };
}

export const verbOf = (uplink: string) => (isReceived(uplink) ? "receives" : "sends");
