// Three minutes of samples on one clock, kept in the page.

export const keptSeconds = 180;
const pauseSeconds = 5; // longer than this without a sample is a gap in the plots

export type Values = (number | null)[];

// Samples are times, and series of values that are each as long as times.
export class Samples {
  // times are seconds on a clock that only goes forward.
  times: number[] = [];

  constructor(private series: () => Iterable<Values>) {}

  // begin makes room for a sample, null for now, and says how long ago the last one was.
  begin(at: number): number {
    const last = this.times.at(-1);
    if (last !== undefined && at - last > pauseSeconds) this.step(last + 1);
    this.step(at);
    return last === undefined ? 0 : at - last;
  }

  // precede puts times before the first, without values yet.
  precede(times: number[]): void {
    this.times.unshift(...times);
    for (const values of this.series()) values.unshift(...times.map(() => null));
  }

  // none is a series of who was not there before.
  none(): Values {
    return this.times.map(() => null);
  }

  private step(at: number): void {
    this.times.push(at);
    let old = 0;
    while (at - (this.times[old] ?? at) > keptSeconds) old++;
    this.times.splice(0, old);
    for (const values of this.series()) {
      values.push(null);
      values.splice(0, old);
    }
  }
}

// isOver: all values are older than what is kept.
export const isOver = (values: Values) => values.every((value) => value === null);
