// Who sends how much through an uplink: areas on top of each other.

import type { Container, Uplink } from "./api";
import { exactRate, rate } from "./format";
import { type History, keyOf } from "./history";
import { Name } from "./name";
import { type Line, Plot } from "./plot";
import { deviceOf, isReceived, nameOfReceived, verbOf } from "./received";
import type { Values } from "./samples";

// More areas than colours cannot be told apart: the rest is one.
const colours = 8;

// taken has the colours of the containers that were shown lately, which keep them.
const taken = new Map<string, number>();

// shownOf are those that sent and received most in the time that is kept.
function shownOf(history: History, uplink: string, containers: Container[]): Container[] {
  const sent = containers.map((c) => {
    const values = [uplink, nameOfReceived(uplink)].flatMap((name) => history.of(keyOf(c), name)?.rate ?? []);
    return { c, sum: values.reduce<number>((sum, value) => sum + (value ?? 0), 0) };
  });
  const chosen = new Set(sent.filter((s) => s.sum > 0).sort((a, b) => b.sum - a.sum).slice(0, colours).map((s) => s.c));
  return containers.filter((c) => chosen.has(c));
}

function colour(uplink: string, shown: Container[]): string[] {
  const names = shown.map((c) => uplink + "\n" + keyOf(c));
  for (const name of taken.keys()) if (name.startsWith(uplink + "\n") && !names.includes(name)) taken.delete(name);
  const free = new Set(Array.from({ length: colours }, (_, i) => i));
  for (const name of names) free.delete(taken.get(name) ?? -1);
  return names.map((name) => {
    let mine = taken.get(name);
    if (mine === undefined) {
      mine = Math.min(...free);
      free.delete(mine);
      taken.set(name, mine);
    }
    return "c" + mine;
  });
}

// edges adds a container's values to those below.
function edges(below: Values, values: Values): Values {
  return below.map((under, i) => (under === null && values[i] == null ? null : (under ?? 0) + (values[i] ?? 0)));
}

// Colours are those of containers, by their keys, that are not among the others.
export type Colours = Map<string, string>;

export function coloursOf(history: History, uplink: string, containers: Container[]): Colours {
  const shown = shownOf(history, uplink, containers);
  const its = colour(uplink, shown);
  return new Map(shown.map((c, i) => [keyOf(c), its[i] ?? "c0"]));
}

export function Stack(props: { uplink: Uplink; containers: Container[]; history: History; colours: Colours; theme: string }) {
  const { uplink, containers, history } = props;
  const shown = containers.filter((c) => props.colours.has(keyOf(c)));
  const lines: Line[] = [];
  let below: Values = history.times.map(() => null);
  const put = (key: string, label: Line["label"], values: Values, name: string) => {
    below = edges(below, values);
    lines.push({ key, label, values: below, shown: values, colour: name, area: true });
  };
  for (const c of shown) put(keyOf(c), <Name text={c.name} />, history.of(keyOf(c), uplink.name)?.rate ?? [], props.colours.get(keyOf(c)) ?? "c0");
  const others = containers.filter((c) => !shown.includes(c)).map((c) => history.of(keyOf(c), uplink.name)?.rate ?? []);
  if (shown.length === colours && others.length > 0) {
    const sum = others.reduce((sum, values) => edges(sum, values), history.times.map(() => null));
    put("others", `${others.length} others`, sum, "others");
  }
  // The highest edge is drawn first, the areas below it over it.
  lines.reverse();
  const silent = shown.length === 0;
  lines.push({ key: "link", label: isReceived(uplink.name) ? "in_rate of the uplink" : "rate of the uplink", values: history.times.map(() => uplink.rate_bps), colour: "mark", dashed: true });
  const since = Math.round((history.times.at(-1) ?? 0) - (history.times[0] ?? 0));
  return (
    <Plot title={`What each container ${verbOf(uplink.name)}, on top of each other`} times={history.times} lines={lines} format={rate} height={240}
      theme={props.theme} atLeast={uplink.rate_bps * 1.05}
      empty={silent
        ? `Nothing was ${isReceived(uplink.name) ? "received" : "sent"} through ${deviceOf(uplink.name)} (${exactRate(uplink.rate_bps)}) since this page was opened${since > 5 ? ", or in the last three minutes" : ""}. What a container ${verbOf(uplink.name)} shows here within two seconds.`
        : undefined} />
  );
}
