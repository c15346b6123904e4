// Three minutes of numbers by name, kept in the page.

import { isOver, Samples, type Values } from "./samples";

export class Numbers {
  private values = new Map<string, Values>();
  private samples = new Samples(() => this.values.values());

  get times(): number[] {
    return this.samples.times;
  }

  of(name: string): Values {
    return this.values.get(name) ?? [];
  }

  // names are those that have a value in the time that is kept.
  names(): string[] {
    return [...this.values.keys()].sort();
  }

  add(at: number, sample: [string, number][]): void {
    this.samples.begin(at);
    for (const [name, value] of sample) {
      const series = this.values.get(name) ?? this.samples.none();
      series[this.times.length - 1] = value;
      this.values.set(name, series);
    }
    for (const [name, series] of this.values) if (isOver(series)) this.values.delete(name);
  }
}
