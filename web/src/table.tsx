// The containers of an uplink, one a row; on a phone, one a card.

import { Component, type ComponentChildren } from "preact";
import type { Container, Share, Uplink } from "./api";
import { bytes, exactRate, milliseconds, rate } from "./format";
import { type History, keyOf } from "./history";
import { Name } from "./name";
import type { Colours } from "./stack";
import { wants, why } from "./words";

export function shareAt(c: Container, uplink: string): Share | undefined {
  return c.shares?.find((s) => s.uplink === uplink);
}

// Bar is the rate of a container, with marks where it is entitled to, where its
// minimum and where its maximum is, in tenths of a percent of the full bar; 0 for none.
// The numbers are in the row, too.
interface Bar {
  rate: number;
  entitled: number;
  floor: number;
  ceiling: number;
}

function Drawn({ bar }: { bar: Bar }) {
  const mark = (kind: string, at: number) => at > 0 && <line class={kind} x1={at} x2={at} y1={kind === "entitled" ? 0 : 2} y2={kind === "entitled" ? 12 : 10} />;
  return (
    <svg class="bar" viewBox="0 0 1000 12" preserveAspectRatio="none" aria-hidden="true">
      <rect class="room" width="1000" height="8" y="2" />
      <rect class="rate" width={bar.rate} height="8" y="2" />
      {mark("floor", bar.floor)}
      {mark("ceiling", bar.ceiling)}
      {mark("entitled", bar.entitled)}
    </svg>
  );
}

const columns = ["container and mode", "weight", "min", "max", "priority", "latency", "wants", "entitled", "rate", "", "delay: median / 99 %", "queued", "drops", "why"];

function Cell(props: { column: number; class?: string; children: ComponentChildren }) {
  return <td role="cell" data-label={columns[props.column]} class={props.class}>{props.children}</td>;
}

// RowText is all that a row shows, of plain values: a row is drawn again only when one
// of them is another one.
interface RowText {
  name: string;
  // colour is that of the plot, "" if it is not in there by itself.
  colour: string;
  mode: string;
  weight: number;
  min: string;
  max: string;
  priority: number;
  latency: string;
  wants: string;
  entitled: string;
  rate: string;
  delay: string;
  queued: string;
  drops: string;
  state: string;
  why: string;
  // foreign: the agent's words are in why, with names that others chose.
  foreign: boolean;
}

// mostMoving is how many bars move to where they are next; that of hundreds takes three
// times the processor's time of all else.
const mostMoving = 20;

const none = "–";

function textOf(c: Container, share: Share | undefined, drops: number | null | undefined, colour: string): RowText {
  const { policy } = c;
  return {
    name: c.name, colour, mode: c.mode, weight: policy.weight, priority: policy.priority,
    min: policy.min_bps ? exactRate(policy.min_bps) : none,
    max: policy.max_bps ? exactRate(policy.max_bps) : none,
    latency: policy.latency_ms ? milliseconds(policy.latency_ms) : none,
    wants: share ? wants(share) : none,
    entitled: share ? rate(share.entitled_bps) : none,
    rate: share ? rate(share.rate_bps) : none,
    delay: share && share.delay_p99_ms > 0 ? `${Number(share.delay_p50_ms.toPrecision(2))} / ${milliseconds(share.delay_p99_ms)}` : none,
    queued: share ? bytes(share.backlog_bytes) : none,
    drops: share ? share.dropped_packets + (drops ? ` (${Math.round(drops)}/s)` : "") : none,
    state: c.state, why: why(c, share), foreign: c.reason !== "",
  };
}

function barOf(c: Container, share: Share, fullBPS: number): Bar {
  const at = (bps: number) => Math.min(1000, Math.round((1000 * bps) / fullBPS));
  return { rate: at(share.rate_bps), entitled: at(share.entitled_bps), floor: at(c.policy.min_bps), ceiling: at(c.policy.max_bps) };
}

function same<T extends object>(a: T | undefined, b: T | undefined): boolean {
  if (!a || !b) return a === b;
  for (const name in a) if (a[name] !== b[name]) return false;
  return true;
}

interface RowProps {
  id: string;
  text: RowText;
  bar: Bar | undefined;
  selected: boolean;
  choose: (key: string) => void;
}

class Row extends Component<RowProps> {
  override shouldComponentUpdate(next: RowProps): boolean {
    const { id, text, bar, selected, choose } = this.props;
    return id !== next.id || selected !== next.selected || choose !== next.choose || !same(text, next.text) || !same(bar, next.bar);
  }

  override render({ id, text, bar, selected, choose }: RowProps) {
    return (
      <tr role="row" class={selected ? "selected" : ""}>
        <th role="rowheader" scope="row">
          {text.colour && <i class={"swatch of-" + text.colour} />}
          <button type="button" aria-expanded={selected} onClick={() => choose(selected ? "" : id)}>
            <Name text={text.name} />
          </button>
          <small class="quiet">{text.mode}</small>
        </th>
        <Cell column={1} class="number">{text.weight}</Cell>
        <Cell column={2} class="number">{text.min}</Cell>
        <Cell column={3} class="number">{text.max}</Cell>
        <Cell column={4} class="number">{text.priority || none}</Cell>
        <Cell column={5} class="number">{text.latency}</Cell>
        <Cell column={6} class="number">{text.wants}</Cell>
        <Cell column={7} class="number">{text.entitled}</Cell>
        <Cell column={8} class="number strong">{text.rate}</Cell>
        <Cell column={9} class="bars">{bar && <Drawn bar={bar} />}</Cell>
        <Cell column={10} class="number">{text.delay}</Cell>
        <Cell column={11} class="number">{text.queued}</Cell>
        <Cell column={12} class="number">{text.drops}</Cell>
        <Cell column={13} class="why">
          {text.state && <span class={"state " + text.state}>{text.state}</span>} {text.foreign ? <Name text={text.why} /> : text.why}
        </Cell>
      </tr>
    );
  }
}

// roundUp has one digit and a half: bars that change their scale are all drawn again.
function roundUp(bps: number): number {
  const power = 10 ** Math.floor(Math.log10(bps));
  return power * ([1, 1.5, 2, 3, 5, 7].find((step) => step * power >= bps) ?? 10);
}

// fullOf is the rate of a full bar. Of many containers each has little: it is as long as the largest needs.
function fullOf({ uplink, containers }: Way): number {
  const largest = Math.max(1, ...containers.map((c) => {
    const share = shareAt(c, uplink.name);
    return Math.max(share?.rate_bps ?? 0, share?.entitled_bps ?? 0, c.policy.min_bps);
  }));
  return Math.min(Math.max(uplink.rate_bps, 1), roundUp(largest));
}

// Way is what an uplink sends or receives, with the containers as they have it.
export interface Way {
  uplink: Uplink;
  containers: Container[];
}

export const rowKey = (c: Container, uplink: string) => uplink + "\n" + keyOf(c);

export function Table(props: { ways: Way[]; history: History; colours: Colours; selected: string; choose: (key: string) => void }) {
  const { ways } = props;
  const full = ways.map(fullOf);
  const { uplink, containers } = ways[0]!;
  return (
    <>
      <p class="legend marks">
        <span><i class="of-sends" /> rate</span>
        <span><i class="tick of-mark" /> is entitled to</span>
        <span><i class="tick of-floor" /> minimum</span>
        <span><i class="tick of-ceiling" /> maximum</span>
        <span class="quiet">full bar: {full.map((bps, i) => rate(bps) + (i > 0 ? " in" : "")).join(", ")}</span>
      </p>
      <div class="wide containers">
        <table role="table" class={containers.length <= mostMoving ? "few" : ""} aria-label={"Containers at " + uplink.name}>
          <thead role="rowgroup">
            <tr role="row">
              {columns.map((name, i) => (
                <th role="columnheader" scope="col" key={i} class={i >= 1 && i <= 12 && i !== 9 ? "number" : ""}>
                  {name || <span class="hidden">bar</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {containers.flatMap((_, i) => ways.map((way, direction) => {
              const c = way.containers[i]!;
              const { name } = way.uplink;
              const key = rowKey(c, name);
              const share = shareAt(c, name);
              const text = textOf(c, share, props.history.of(keyOf(c), name)?.drops.at(-1), props.colours.get(keyOf(c)) ?? "");
              if (direction > 0) {
                text.name += " in";
                text.mode = "received";
              }
              return (
                <Row key={key} id={key} text={text} bar={share && barOf(c, share, full[direction] ?? 1)} selected={props.selected === key} choose={props.choose} />
              );
            }))}
          </tbody>
        </table>
      </div>
    </>
  );
}
