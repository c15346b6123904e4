// What the agent says, as api/v1/types.go has it; a test there compares the names.

export interface Policy {
  weight: number;
  min_bps: number;
  max_bps: number;
  priority: number;
  latency_ms: number;
  class: string;
}

export interface PolicyFrom {
  weight: string;
  min: string;
  max: string;
  priority: string;
  latency: string;
  class: string;
}

export interface Share {
  uplink: string;
  entitled_bps: number;
  allocated_bps: number;
  rate_bps: number;
  backlog_bytes: number;
  dropped_packets: number;
  delay_p50_ms: number;
  delay_p99_ms: number;
}

export type State = "ok" | "degraded" | "rejected";

export interface Container {
  id: string;
  name: string;
  runtime: string;
  mode: string;
  policy: Policy;
  policy_from: PolicyFrom;
  state: State;
  reason: string;
  shares: Share[] | null;
}

export interface Uplink {
  name: string;
  rate_bps: number;
  reserve_bps: number;
  sent_bps: number;
  scheduler: string;
  present: boolean;
  state: State;
  reason: string;
}

export interface Source {
  name: string;
  connected: boolean;
  reason: string;
}

export interface Status {
  version: string;
  state: State;
  reason: string;
  age_ms: number;
  uplinks: Uplink[] | null;
  sources: Source[] | null;
}

export interface Snapshot {
  status: Status;
  containers: Container[] | null;
}

export interface Event {
  seq: number;
  at: string;
  kind: string;
  container?: string;
  uplink?: string;
  policy?: Policy;
  message?: string;
}

// patienceMS is how long an answer may take.
const patienceMS = 5000;

async function get(path: string): Promise<string> {
  let response: Response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(patienceMS) });
  } catch {
    throw new Error("nothing answers at " + location.host);
  }
  const text = await response.text();
  if (response.ok) return text;
  let reason = "";
  try {
    reason = String((JSON.parse(text) as { error?: unknown }).error ?? "");
  } catch {
    // not the agent's words; the status has to do
  }
  throw new Error(reason || "the answer is " + response.status + " " + response.statusText);
}

export async function snapshot(): Promise<Snapshot> {
  return JSON.parse(await get("v1/snapshot")) as Snapshot;
}

// events are those after the one with number since that have happened so far.
export async function events(since: number): Promise<Event[]> {
  const text = await get(`v1/events?since=${since}&follow=false`);
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as Event);
}
