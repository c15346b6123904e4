// The containers of an uplink, one a row; on a phone, one a card.

import type { ComponentChildren } from "preact";
import type { Container, Share, Uplink } from "./api";
import { bytes, exactRate, milliseconds, rate } from "./format";
import { type History, keyOf } from "./history";
import { Name } from "./name";
import { wants, why } from "./words";

export function shareAt(c: Container, uplink: string): Share | undefined {
  return c.shares?.find((s) => s.uplink === uplink);
}

// Bar is what a container sends, with marks where it is entitled to, where its
// minimum and where its maximum is. The numbers are in the row, too.
function Bar(props: { share: Share; min: number; max: number; fullBPS: number }) {
  const at = (bps: number) => Math.min(100, (100 * bps) / props.fullBPS);
  const mark = (kind: string, bps: number) => bps > 0 && <line class={kind} x1={at(bps)} x2={at(bps)} y1={kind === "entitled" ? 0 : 2} y2={kind === "entitled" ? 12 : 10} />;
  return (
    <svg class="bar" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">
      <rect class="room" width="100" height="8" y="2" />
      <rect class="rate" width={at(props.share.rate_bps)} height="8" y="2" />
      {mark("floor", props.min)}
      {mark("ceiling", props.max)}
      {mark("entitled", props.share.entitled_bps)}
    </svg>
  );
}

const columns = ["container and mode", "weight", "min", "max", "priority", "latency", "wants", "entitled", "sends", "", "delay p50 / p99", "queued", "drops", "why"];

function Cell(props: { column: number; class?: string; children: ComponentChildren }) {
  return <td role="cell" data-label={columns[props.column]} class={props.class}>{props.children}</td>;
}

function Row(props: { c: Container; uplink: Uplink; history: History; fullBPS: number; selected: boolean; choose: (key: string) => void }) {
  const { c, uplink } = props;
  const { policy } = c;
  const key = keyOf(c);
  const share = shareAt(c, uplink.name);
  const drops = props.history.of(key, uplink.name)?.drops.at(-1);
  return (
    <tr role="row" class={props.selected ? "selected" : ""}>
      <th role="rowheader" scope="row">
        <button type="button" aria-expanded={props.selected} onClick={() => props.choose(props.selected ? "" : key)}>
          <Name text={c.name} />
        </button>
        <small class="quiet">{c.mode}</small>
      </th>
      <Cell column={1} class="number">{policy.weight}</Cell>
      <Cell column={2} class="number">{policy.min_bps ? exactRate(policy.min_bps) : "–"}</Cell>
      <Cell column={3} class="number">{policy.max_bps ? exactRate(policy.max_bps) : "–"}</Cell>
      <Cell column={4} class="number">{policy.priority || "–"}</Cell>
      <Cell column={5} class="number">{policy.latency_ms ? milliseconds(policy.latency_ms) : "–"}</Cell>
      <Cell column={6} class="number">{share ? wants(share) : "–"}</Cell>
      <Cell column={7} class="number">{share ? rate(share.entitled_bps) : "–"}</Cell>
      <Cell column={8} class="number strong">{share ? rate(share.rate_bps) : "–"}</Cell>
      <Cell column={9} class="bars">{share && <Bar share={share} min={policy.min_bps} max={policy.max_bps} fullBPS={props.fullBPS} />}</Cell>
      <Cell column={10} class="number">
        {share && share.delay_p99_ms > 0 ? `${Number(share.delay_p50_ms.toPrecision(2))} / ${milliseconds(share.delay_p99_ms)}` : "–"}
      </Cell>
      <Cell column={11} class="number">{share ? bytes(share.backlog_bytes) : "–"}</Cell>
      <Cell column={12} class="number">{share ? share.dropped_packets + (drops ? ` (${Math.round(drops)}/s)` : "") : "–"}</Cell>
      <Cell column={13} class="why"><span class={"state " + c.state}>{c.state}</span> <Reason c={c} share={share} /></Cell>
    </tr>
  );
}

function Reason({ c, share }: { c: Container; share: Share | undefined }) {
  const text = why(c, share);
  return c.reason !== "" ? <Name text={text} /> : <>{text}</>;
}

export function Table(props: { uplink: Uplink; containers: Container[]; history: History; selected: string; choose: (key: string) => void }) {
  const { uplink, containers } = props;
  // Of many containers each has little: the bars are as long as the largest needs.
  const largest = Math.max(1, ...containers.map((c) => {
    const share = shareAt(c, uplink.name);
    return Math.max(share?.rate_bps ?? 0, share?.entitled_bps ?? 0, c.policy.min_bps);
  }));
  const fullBPS = Math.min(Math.max(uplink.rate_bps, 1), largest * 1.1);
  return (
    <>
      <p class="legend marks">
        <span><i class="of-sends" /> sends</span>
        <span><i class="tick of-mark" /> is entitled to</span>
        <span><i class="tick of-floor" /> minimum</span>
        <span><i class="tick of-ceiling" /> maximum</span>
        <span class="quiet">full bar: {rate(fullBPS)}</span>
      </p>
      <div class="wide containers">
        <table role="table" aria-label={"Containers at " + uplink.name}>
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
            {containers.map((c) => (
              <Row key={keyOf(c)} c={c} uplink={uplink} history={props.history} fullBPS={fullBPS}
                selected={props.selected === keyOf(c)} choose={props.choose} />
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
