// What `weir sdn run` says, as api/v1/sdn.go has it; a test compares the names.

import { ask } from "./api";

export interface SDNQueue {
  id: number;
  class: string;
  applications?: string[];
  min_bps?: number;
  max_bps?: number;
  rate_bps: number;
  sent_bytes: number;
  dropped_packets: number;
}

export interface SDNPort {
  number: number;
  name: string;
  up: boolean;
  hosts?: string[];
  peer_dpid?: string;
  peer_port?: number;
  rate_bps: number;
  sent_bps: number;
  received_bps: number;
  dropped_packets: number;
  queues?: SDNQueue[];
  state?: string;
  reason?: string;
  trust?: SDNTrust;
}

export interface SDNTrust {
  refused?: string;
}

export interface SDNSwitch {
  dpid: string;
  connected: boolean;
  role: string;
  table_full: boolean;
  flows: number;
  state: string;
  reason?: string;
  ports: SDNPort[];
}

export interface SDNClass {
  class: string;
  flows: number;
  sent_packets: number;
  sent_bytes: number;
}

export interface SDN {
  switches: SDNSwitch[];
  classes: SDNClass[];
}

export interface SDNFlow {
  flow: string;
  class: string;
  path: SDNHop[];
}

export interface SDNHop {
  dpid: string;
  out: number;
}

export interface SDNLinks {
  promises: SDNPromise[] | null;
}

export interface SDNPromise {
  id: string;
  service: string;
  node: string;
  peer: string;
  min_bps: number;
  back_bps: number;
  state: string;
  reason?: string;
  path?: SDNHop[];
}

// promises are the minimums that are promised on links between switches.
export async function promises(): Promise<SDNPromise[]> {
  return (JSON.parse((await ask("v1/links")).text) as SDNLinks).promises ?? [];
}

// sdnFlows are the flows that begin or end at one of ends.
export async function sdnFlows(ends: string[]): Promise<SDNFlow[]> {
  const query = new URLSearchParams([...new Set(ends)].map((end) => ["end", end]));
  return JSON.parse((await ask("v1/sdn/flows?" + query)).text) as SDNFlow[];
}

export async function network(): Promise<SDN> {
  return JSON.parse((await ask("v1/sdn")).text) as SDN;
}

// drawing is the network as SVG.
export async function drawing(): Promise<string> {
  return (await ask("v1/sdn/topology.svg")).text;
}
