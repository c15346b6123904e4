// Numbers as `weir ps` writes them, and text of others made safe to look at.

const rateUnits: [string, number][] = [["tbit", 1e12], ["gbit", 1e9], ["mbit", 1e6], ["kbit", 1e3], ["bit", 1]];

// rate has at most three digits: 16.7mbit, 100mbit, 0bit.
export function rate(bps: number): string {
  const rounded = Number(bps.toPrecision(3));
  const [unit, size] = rateUnits.find(([, size]) => rounded >= size) ?? ["bit", 1];
  return String(Number((rounded / size).toPrecision(3))) + unit;
}

// exactRate is a rate as a user writes it.
export function exactRate(bps: number): string {
  const [unit, size] = rateUnits.find(([, size]) => bps >= size && (bps * 1000) % size === 0) ?? ["bit", 1];
  return String(bps / size) + unit;
}

// part is a part of a share as labels have it: 2mbit, 50%.
export function part(p: { bps: number; percent: number }): string {
  return p.bps ? exactRate(p.bps) : p.percent + "%";
}

export function bytes(count: number): string {
  if (count < 1000) return count.toFixed(0) + " B";
  return count < 1e6 ? Number((count / 1e3).toPrecision(3)) + " kB" : (count / 1e6).toFixed(1) + " MB";
}

export function milliseconds(ms: number): string {
  return ms >= 100 ? ms.toFixed(0) + " ms" : Number(ms.toPrecision(2)) + " ms";
}

export function seconds(count: number): string {
  return count < 60 ? Math.round(count) + " s" : Math.floor(count / 60) + " min " + Math.round(count % 60) + " s";
}

// counted is "1 switch", "2 switches".
export function counted(n: number, one: string, many = one + "s"): string {
  return `${n} ${n === 1 ? one : many}`;
}

// visible writes out what would hide in a name, or change the order in which text
// around it is shown: control characters, marks of direction, odd spaces.
export function visible(text: string): string {
  return text.replace(/[\p{C}\p{Z}]/gu, (letter) =>
    letter === " " ? letter : "\\u{" + (letter.codePointAt(0) ?? 0).toString(16) + "}");
}
