// What the agent says, as api/v1/types.go has it; a test there compares the names.

// Part is a part of a share: a rate, or where that is 0 a percentage.
export interface Part {
  bps: number;
  percent: number;
}

export interface Policy {
  weight: number;
  min_bps: number;
  max_bps: number;
  priority: number;
  latency_ms: number;
  class: string;
  ef_max: Part;
  af_min: Part;
  dscp: string; // "": the field is left alone
}

export interface PolicyFrom {
  weight: string;
  min: string;
  max: string;
  priority: string;
  latency: string;
  class: string;
  ef_max: string;
  af_min: string;
  dscp: string;
}

export interface ClassShare {
  class: string;
  max_bps: number;
  min_bps: number;
  rate_bps: number;
  excess_bps: number;
  held: boolean;
  backlog_bytes: number;
  dropped_packets: number;
  marked_packets: number;
  delay_p50_ms: number;
  delay_p99_ms: number;
}

export interface Share {
  uplink: string;
  entitled_bps: number;
  allocated_bps: number;
  wants_more: boolean;
  wanted_bps: number;
  rate_bps: number;
  backlog_bytes: number;
  dropped_packets: number;
  marked_packets: number;
  delay_p50_ms: number;
  delay_p99_ms: number;
  classes?: ClassShare[];
}

export type State = "ok" | "degraded" | "rejected";

// Direction is what a container sends, or what it receives.
export interface Direction {
  policy: Policy;
  policy_from: PolicyFrom;
  shares: Share[] | null;
}

export interface Container extends Direction {
  id: string;
  name: string;
  runtime: string;
  mode: string;
  state: State | ""; // "": that of what it sends is that of both directions
  reason: string;
  in?: Direction;
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
  in?: UplinkIn;
}

export interface UplinkIn {
  rate_bps: number;
  reserve_bps: number;
  received_bps: number;
  scheduler: string;
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
  last_event?: number;
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
  in?: Policy;
  message?: string;
}

export interface SharePreview {
  id: string;
  name: string;
  entitled_before_bps: number;
  entitled_after_bps: number;
  allocated_before_bps: number;
  allocated_after_bps: number;
  admitted_bps: number;
}

export interface UplinkPreview {
  uplink: string;
  refused?: string;
  shares: SharePreview[] | null;
}

export interface Preview {
  before: Policy;
  after: Policy;
  refused?: string;
  uplinks: UplinkPreview[];
}

export interface PolicyChange {
  weight?: string;
  min?: string;
  max?: string;
  priority?: string;
  latency?: string;
  class?: string;
  ef_max?: string;
  af_min?: string;
  dscp?: string;
}

export interface Flow {
  protocol: string;
  initiator: string;
  responder: string;
  application: string;
  class: string;
  by_dscp: boolean;
  stage: number;
  confidence: number;
  sent_bytes: number;
  received_bytes: number;
}

export interface ExplainedShare {
  uplink: string;
  entitled_bps: number;
  entitled: string[] | null;
  allocated_bps: number;
  allocated: string[] | null;
  for_more: string[] | null;
}

export interface ExplainedValue {
  name: string;
  value: string;
  from: string;
  notes?: string[];
}

export interface Explanation {
  policy: ExplainedValue[] | null;
  shares: ExplainedShare[] | null;
  in_policy?: ExplainedValue[];
  in_shares?: ExplainedShare[];
}

export interface HistorySample {
  at: string;
  entitled_bps: number;
  rate_bps: number;
  wants_more: boolean;
  wanted_bps: number;
  backlog_bytes: number;
  delay_p50_ms: number;
  delay_p99_ms: number;
  dropped_packets: number;
  marked_packets: number;
}

export interface HistoryShare {
  uplink: string;
  samples: HistorySample[] | null;
}

export interface Access {
  name: string;
  role: string;
}

// patienceMS is how long an answer may take.
const patienceMS = 5000;

// token lets an administrator change policies. It is sent with what changes something and
// with nothing else, and is gone with the tab.
let token = sessionStorage.getItem("token") ?? "";

export const signedIn = (): boolean => token !== "";

export function signOut(): void {
  token = "";
  sessionStorage.removeItem("token");
}

// signIn keeps a token, if the agent takes it for an administrator's.
export async function signIn(given: string): Promise<void> {
  token = given;
  try {
    const { name, role } = JSON.parse((await ask("v1/access", { headers: authorization() })).text) as Access;
    if (role !== "admin") throw new Error(`${name} is for looking only; a change takes a token with the role admin`);
  } catch (error) {
    signOut();
    throw error;
  }
  sessionStorage.setItem("token", given);
}

const authorization = () => ({ Authorization: "Bearer " + token });

const nothingAnswers = () => new Error("nothing answers at " + location.host);

// send returns the answer to a request, if that is a success.
async function send(path: string, request: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, request);
  } catch {
    throw nothingAnswers();
  }
  if (response.ok) return response;
  let reason = "";
  try {
    reason = String((JSON.parse(await response.text()) as { error?: unknown }).error ?? "");
  } catch {
    // not the agent's words; the status has to do
  }
  throw new Error(reason || "the answer is " + response.status + " " + response.statusText);
}

export async function ask(path: string, request: RequestInit = {}): Promise<{ text: string; etag: string }> {
  const response = await send(path, { ...request, signal: AbortSignal.timeout(patienceMS) });
  return { text: await response.text(), etag: response.headers.get("ETag") ?? "" };
}

// A browser has about six connections for all pages of an address, and a page that follows takes one: at most
// mostFollowing pages follow, and others ask each second.
const mostFollowing = 3;
// A path that delivers snapshots later than this is too slow to follow on: what is under way is old.
const mostLagMS = 3000;
// A page that cannot follow asks each second for so long before it tries again.
const followAgainMS = 60_000;

let followAt = 0; // on the clock of the page

// followPlace returns what gives back one of mostFollowing places to follow, or undefined if pages of this browser have
// them all.
async function followPlace(): Promise<(() => void) | undefined> {
  if (!isSecureContext) return undefined; // it has no locks
  for (let place = 0; place < mostFollowing; place++) {
    const leave = await new Promise<(() => void) | undefined>((got) => {
      const held = (lock: Lock | null) => new Promise<void>((free) => {
        got(lock ? free : undefined);
        if (!lock) free();
      });
      navigator.locks.request("follow " + place, { ifAvailable: true }, held).catch(() => got(undefined));
    });
    if (leave) return leave;
  }
  return undefined;
}

// snapshots are one at once, and one a second until the page is hidden, cannot follow, or the daemon ends. Why a page
// cannot follow its next request reports, if that fails, too.
export async function* snapshots(): AsyncGenerator<Snapshot> {
  yield JSON.parse((await ask("v1/snapshot")).text) as Snapshot;
  if (document.hidden || performance.now() < followAt) return;
  const leave = await followPlace();
  if (!leave) return;
  const over = new AbortController();
  const end = () => over.abort();
  const hide = () => document.hidden && end();
  document.addEventListener("visibilitychange", hide);
  hide(); // it may be hidden by now
  let timer = setTimeout(end, patienceMS);
  try {
    const response = await fetch("v1/snapshot?follow=true", { signal: over.signal }).catch(() => undefined);
    if (!response?.ok) {
      if (!document.hidden) followAt = performance.now() + followAgainMS;
      return;
    }
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    const began = performance.now();
    let received = 0;
    for (let rest = ""; ; ) {
      const { done, value } = await reader.read().catch(() => { throw nothingAnswers(); });
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(end, patienceMS);
      const lines = (rest + value).split("\n");
      rest = lines.pop() ?? "";
      received += lines.length;
      if (performance.now() - began - 1000 * received > mostLagMS) {
        followAt = performance.now() + followAgainMS;
        return;
      }
      const newest = lines.at(-1);
      if (newest !== undefined) yield JSON.parse(newest) as Snapshot;
    }
  } catch (error) {
    if (!document.hidden) throw error;
  } finally {
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", hide);
    end();
    leave();
  }
}

// mostFlows is how many flows of a container the page shows: those seen last.
export const mostFlows = 100;

export async function flows(id: string): Promise<Flow[]> {
  return (JSON.parse((await ask(`v1/flows?container=${encodeURIComponent(id)}&limit=${mostFlows}`)).text) as Flow[] | null) ?? [];
}

// lastMinutes are what the agent remembers of a container.
export async function lastMinutes(id: string): Promise<HistoryShare[]> {
  return (JSON.parse((await ask(`v1/containers/${encodeURIComponent(id)}/history`)).text) as { shares: HistoryShare[] | null }).shares ?? [];
}

export async function explanation(id: string): Promise<Explanation> {
  return JSON.parse((await ask(`v1/containers/${encodeURIComponent(id)}/explain`)).text) as Explanation;
}

const policyPath = (id: string) => `v1/containers/${encodeURIComponent(id)}/policy`;

// policyTag is the ETag of a container's policy as it is now.
export async function policyTag(id: string): Promise<string> {
  return (await ask(policyPath(id))).etag;
}

export async function preview(id: string, change: PolicyChange): Promise<Preview> {
  const request = { method: "POST", headers: { ...authorization(), "Content-Type": "application/json" }, body: JSON.stringify(change) };
  return JSON.parse((await ask(policyPath(id) + "/preview", request)).text) as Preview;
}

// change makes a change, or takes all back, if the policy has that ETag still.
export async function change(id: string, etag: string, made: PolicyChange | undefined): Promise<void> {
  const headers = { ...authorization(), "If-Match": etag };
  await ask(policyPath(id), made
    ? { method: "PATCH", headers: { ...headers, "Content-Type": "application/json" }, body: JSON.stringify(made) }
    : { method: "DELETE", headers });
}

// events are those after the one with number since that have happened so far.
export async function events(since: number): Promise<Event[]> {
  const { text } = await ask(`v1/events?since=${since}&follow=false`);
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as Event);
}
