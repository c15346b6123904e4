// What weir-edge says, as api/v1/edge/types.go has it; a test there compares the names.

import { ask } from "./api";

export interface EdgeInstance {
  service: string;
  node: string;
  instance: string;
  state: string;
  users: number;
  waiting?: number;
  response_ms: number;
  response_end?: string;
  reason?: string;
  min_bps: number;
  service_min_bps?: number;
  in_min_bps?: number;
  service_in_min_bps?: number;
}

export interface EdgeNode {
  name: string;
  address?: string;
  state: string;
  reason?: string;
  age_seconds: number;
  weir: boolean;
  cpus: number;
  cpu_used_percent: number;
  memory_bytes: number;
  memory_used_bytes: number;
  uplink_bps: number;
  uplink_sent_bps: number;
  promised_bps: number;
  free_bps: number;
  instances: number;
}

export interface EdgeService {
  name: string;
  image: string;
  users: number;
  waiting: number;
  instances: number;
  running: number;
  response_ms: number;
  response_p95_ms: number;
  response_end?: string;
  requests: number;
  failed_requests: number;
  min_bps?: number;
  in_min_bps?: number;
  claims?: EdgeClaim[];
  reason?: string;
}

export interface EdgeClaim {
  node: string;
  in?: boolean;
  users_bps: number;
  relayed_bps?: number;
  ack_bps?: number;
  sent_bps?: number;
  forwarded_bps?: number;
  starting_bps?: number;
  promised_bps: number;
  in_force_bps: number;
  reason?: string;
}

export interface EdgeDecision {
  action: string;
  service: string;
  instance?: string;
  node?: string;
  cause: string;
  reason: string;
  alternatives?: EdgeAlternative[];
  excluded?: EdgeExclusion[];
}

export interface EdgeExplanation {
  service: EdgeService;
  now: EdgeDecision[] | null;
  earlier: EdgeEvent[] | null;
}

// What the engine says of its choices (internal/edge/engine); it is no part of the wire types.
export type EdgeAlternative = { node: string; transfer_seconds?: number; start_up_seconds?: number; response_seconds?: number; refused?: string };
export type EdgeExclusion = { reason: string; nodes: number; example: string };

export interface EdgeSnapshot {
  at?: string;
  version: string;
  engine: string;
  dry_run: boolean;
  services: EdgeService[] | null;
  instances: EdgeInstance[] | null;
  nodes: EdgeNode[] | null;
  decisions: EdgeDecision[] | null;
}

export interface EdgeEvent {
  seq: number;
  at: string;
  kind: string;
  service?: string;
  instance?: string;
  node?: string;
  message: string;
  decision?: EdgeDecision;
  dry_run?: boolean;
}

export async function edgeSnapshot(): Promise<EdgeSnapshot> {
  return JSON.parse((await ask("v1/snapshot")).text) as EdgeSnapshot;
}

export async function edgeExplanation(service: string): Promise<EdgeExplanation> {
  return JSON.parse((await ask(`v1/services/${encodeURIComponent(service)}/explain`)).text) as EdgeExplanation;
}

// edgeEvents are those after the one with number since that have happened so far.
export async function edgeEvents(since: number): Promise<EdgeEvent[]> {
  const { text } = await ask(`v1/events?since=${since}&follow=false`);
  return text.split("\n").filter((line) => line !== "").map((line) => JSON.parse(line) as EdgeEvent);
}
