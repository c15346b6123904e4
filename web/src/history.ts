// Three minutes of samples of every container, kept in the page; what was before it was
// opened the agent remembers.

import type { Container, HistorySample, HistoryShare, Snapshot } from "./api";
import { receives } from "./received";
import { isOver, keptSeconds, Samples, type Values } from "./samples";

// Series are a container's samples at one uplink, each as long as History.times.
export interface Series {
  rate: Values;
  // wanted has no value where it wanted more than it got: by how much is unknown.
  wanted: Values;
  entitled: Values;
  min: Values;
  max: Values;
  p50: Values;
  p99: Values;
  backlog: Values;
  drops: Values;
  marks: Values;
  // dropped and marked are the counters' last values, of which drops and marks are the
  // differences.
  dropped: number | null;
  marked: number | null;
}

const measures = ["rate", "wanted", "entitled", "min", "max", "p50", "p99", "backlog", "drops", "marks"] as const;

export function keyOf(c: Container): string {
  return c.runtime + "\n" + c.id + "\n" + c.name;
}

export class History {
  private series = new Map<string, Series>();
  private samples = new Samples(() => [...this.series.values()].flatMap((series) => measures.map((name) => series[name])));

  get times(): number[] {
    return this.samples.times;
  }

  of(key: string, uplink: string): Series | undefined {
    return this.series.get(key + "\n" + uplink);
  }

  add(at: number, seen: Snapshot): void {
    const since = this.samples.begin(at);
    for (const c of seen.containers ?? []) {
      this.addContainer(c, since);
      if (c.in) this.addContainer(receives(c), since);
    }
    // The series of a container that is gone ends with its last sample.
    for (const [name, series] of this.series)
      if (isOver(series.rate)) this.series.delete(name);
  }

  // remember fills in what the agent knew of containers, when asked, of the time before the page was opened.
  remember(asked: number, known: { c: Container; shares: HistoryShare[] }[]): void {
    const first = this.times[0];
    if (first === undefined || !known.some(({ shares }) => shares.length > 0)) return;
    const count = Math.max(0, Math.floor(first - (asked - keptSeconds)));
    this.samples.precede(Array.from({ length: count }, (_, i) => first - count + i));
    for (const { c, shares } of known)
      for (const { uplink, samples } of shares) {
        const series = this.of(keyOf(c), uplink);
        const at = clockOf(samples ?? [], asked);
        const values = valuesOf(c.policy.min_bps, c.policy.max_bps);
        if (!series) continue;
        for (const s of samples ?? []) {
          const i = Math.floor(at(s) - (first - count));
          // A second between two samples is like the one before.
          for (const to of [i, i + 1]) if (to >= 0 && to < count) for (const name of measures) series[name][to] = values[name](s);
        }
      }
  }

  private addContainer(c: Container, since: number): void {
    for (const share of c.shares ?? []) {
      const name = keyOf(c) + "\n" + share.uplink;
      let series = this.series.get(name);
      if (!series) {
        const none = () => this.samples.none();
        series = {
          rate: none(), wanted: none(), entitled: none(), min: none(), max: none(), p50: none(), p99: none(),
          backlog: none(), drops: none(), dropped: null, marks: none(), marked: null,
        };
        this.series.set(name, series);
      }
      const i = this.times.length - 1;
      const sends = share.delay_p99_ms > 0;
      series.rate[i] = share.rate_bps;
      series.wanted[i] = share.wants_more ? null : share.wanted_bps;
      series.entitled[i] = share.entitled_bps;
      series.min[i] = c.policy.min_bps || null;
      series.max[i] = c.policy.max_bps || null;
      series.p50[i] = sends ? share.delay_p50_ms : null;
      series.p99[i] = sends ? share.delay_p99_ms : null;
      series.backlog[i] = share.backlog_bytes;
      series.drops[i] = growth(series.dropped, share.dropped_packets, since);
      series.marks[i] = growth(series.marked, share.marked_packets, since);
      series.dropped = share.dropped_packets;
      series.marked = share.marked_packets;
    }
  }
}

// growth is by how much a counter grows a second, since that many ago.
function growth(before: number | null, now: number, since: number): number | null {
  return before !== null && now >= before && since > 0 ? (now - before) / since : null;
}

// clockOf says when samples were, on the clock of the plots. The agent's may be another one: its last
// sample is of when it was asked.
function clockOf(samples: HistorySample[], asked: number): (s: HistorySample) => number {
  const last = Date.parse(samples.at(-1)?.at ?? "");
  return (s) => asked - (last - Date.parse(s.at)) / 1000;
}

// valuesOf are what a sample has of each measure, of a container with a minimum and a maximum.
function valuesOf(min: number, max: number): Record<(typeof measures)[number], (s: HistorySample) => number | null> {
  return {
    rate: (s) => s.rate_bps, wanted: (s) => (s.wants_more ? null : s.wanted_bps), entitled: (s) => s.entitled_bps,
    min: () => min || null, max: () => max || null,
    p50: (s) => (s.delay_p99_ms > 0 ? s.delay_p50_ms : null), p99: (s) => (s.delay_p99_ms > 0 ? s.delay_p99_ms : null),
    backlog: (s) => s.backlog_bytes, drops: (s) => s.dropped_packets, marks: (s) => s.marked_packets,
  };
}

// before puts what the agent remembers before the page's own samples, which begin at the
// first value of series. asked is when the agent said it, on the clock of times.
export function before(samples: HistorySample[], asked: number, times: number[], series: Series, min: number, max: number): { times: number[]; series: Series } {
  const own = series.rate.findIndex((value) => value !== null);
  const begins = times[own] ?? Infinity;
  const at = clockOf(samples, asked);
  const earlier = samples.filter((s) => at(s) < begins - 0.5 && asked - at(s) <= keptSeconds);
  if (own < 0 || earlier.length === 0) return { times, series };
  const values = valuesOf(min, max);
  const joined = { ...series };
  for (const name of measures) joined[name] = [...earlier.map(values[name]), ...series[name].slice(own)];
  return { times: [...earlier.map(at), ...times.slice(own)], series: joined };
}
