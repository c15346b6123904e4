// Three minutes of numbers by name, kept in the page.

import { keptSeconds, type Values } from "./history";

const pauseSeconds = 5; // longer than this without a sample is a gap in the plots

export class Numbers {
  // times are seconds on a clock that only goes forward.
  times: number[] = [];
  private values = new Map<string, Values>();

  of(name: string): Values {
    return this.values.get(name) ?? [];
  }

  // names are those that have a value in the time that is kept.
  names(): string[] {
    return [...this.values.keys()].sort();
  }

  add(at: number, sample: [string, number][]): void {
    const last = this.times.at(-1);
    if (last !== undefined && at - last > pauseSeconds) this.step(last + 1);
    this.step(at);
    for (const [name, value] of sample) {
      const series = this.values.get(name) ?? this.times.map(() => null);
      series[this.times.length - 1] = value;
      this.values.set(name, series);
    }
    for (const [name, series] of this.values) if (series.every((value) => value === null)) this.values.delete(name);
  }

  // step makes room for a sample, null for now.
  private step(at: number): void {
    this.times.push(at);
    let old = 0;
    while (at - (this.times[old] ?? at) > keptSeconds) old++;
    this.times.splice(0, old);
    for (const series of this.values.values()) {
      series.push(null);
      series.splice(0, old);
    }
  }
}
