// Three minutes of samples of every container, kept in the page.

import type { Container, Snapshot } from "./api";

export const keptSeconds = 180;
const pauseSeconds = 5; // longer than this without a sample is a gap in the plots

export type Values = (number | null)[];

// Series are a container's samples at one uplink, each as long as History.times.
export interface Series {
  rate: Values;
  entitled: Values;
  min: Values;
  max: Values;
  p50: Values;
  p99: Values;
  backlog: Values;
  drops: Values;
  // dropped is the counter's last value, of which drops are the differences.
  dropped: number | null;
}

const measures = ["rate", "entitled", "min", "max", "p50", "p99", "backlog", "drops"] as const;

export function keyOf(c: Container): string {
  return c.runtime + "\n" + c.id + "\n" + c.name;
}

export class History {
  // times are seconds on a clock that only goes forward.
  times: number[] = [];
  private series = new Map<string, Series>();

  of(key: string, uplink: string): Series | undefined {
    return this.series.get(key + "\n" + uplink);
  }

  add(at: number, seen: Snapshot): void {
    const last = this.times.at(-1);
    if (last !== undefined && at - last > pauseSeconds) this.step(last + 1);
    const since = last === undefined ? 0 : at - last;
    this.step(at);
    for (const c of seen.containers ?? []) this.addContainer(c, since);
    // Whoever is not there any more is forgotten when its last sample is.
    for (const [name, series] of this.series)
      if (series.rate.every((value) => value === null)) this.series.delete(name);
  }

  // step makes room for a sample, null for now.
  private step(at: number): void {
    this.times.push(at);
    let old = 0;
    while (at - (this.times[old] ?? at) > keptSeconds) old++;
    this.times.splice(0, old);
    for (const series of this.series.values())
      for (const name of measures) {
        series[name].push(null);
        series[name].splice(0, old);
      }
  }

  private addContainer(c: Container, since: number): void {
    for (const share of c.shares ?? []) {
      const name = keyOf(c) + "\n" + share.uplink;
      let series = this.series.get(name);
      if (!series) {
        const none = (): Values => this.times.map(() => null);
        series = {
          rate: none(), entitled: none(), min: none(), max: none(), p50: none(), p99: none(),
          backlog: none(), drops: none(), dropped: null,
        };
        this.series.set(name, series);
      }
      const i = this.times.length - 1;
      const sends = share.delay_p99_ms > 0;
      series.rate[i] = share.rate_bps;
      series.entitled[i] = share.entitled_bps;
      series.min[i] = c.policy.min_bps || null;
      series.max[i] = c.policy.max_bps || null;
      series.p50[i] = sends ? share.delay_p50_ms : null;
      series.p99[i] = sends ? share.delay_p99_ms : null;
      series.backlog[i] = share.backlog_bytes;
      const more = series.dropped === null ? -1 : share.dropped_packets - series.dropped;
      series.drops[i] = more >= 0 && since > 0 ? more / since : null;
      series.dropped = share.dropped_packets;
    }
  }
}
