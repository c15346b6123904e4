// One container: three minutes of its samples, and where its policy comes from.

import { useEffect, useRef, useState } from "preact/hooks";
import { type Container, type HistoryShare, lastMinutes, signedIn, type Uplink } from "./api";
import { Change } from "./change";
import { Classes, Flows } from "./classes";
import { Explain } from "./explain";
import { bytes, exactRate, milliseconds, part, rate } from "./format";
import { before, type History, keyOf } from "./history";
import { Name } from "./name";
import { Plot } from "./plot";
import { isReceived, verbOf } from "./received";
import type { Values } from "./samples";
import { shareAt } from "./table";
import { why } from "./words";

const has = (values: Values) => values.some((value) => value !== null);

// Remembered is what the agent said of the time before the page was opened, and when.
interface Remembered {
  asked: number;
  shares: HistoryShare[];
}

function useRemembered(c: Container): Remembered | undefined {
  const [known, set] = useState<Remembered>();
  useEffect(() => {
    let over = false;
    set(undefined);
    // Without it the plots begin when the page was opened, as they say.
    lastMinutes(c.id).then((shares) => over || set({ asked: performance.now() / 1000, shares }), () => undefined);
    return () => {
      over = true;
    };
  }, [keyOf(c)]);
  return known;
}

const perSecond = (count: number) => Number(count.toPrecision(3)) + "/s";

export function Detail(props: { c: Container; gone: boolean; uplink: Uplink; history: History; theme: string; close: () => void }) {
  const { c, uplink, history, theme } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    heading.current?.focus();
    heading.current?.scrollIntoView({ block: "nearest" });
  }, [keyOf(c), uplink.name]);
  const remembered = useRemembered(c);
  const samples = remembered?.shares.find((s) => s.uplink === uplink.name)?.samples ?? [];
  const ownSeries = history.of(keyOf(c), uplink.name);
  const { times, series } = ownSeries
    ? before(samples, remembered?.asked ?? 0, history.times, ownSeries, c.policy.min_bps, c.policy.max_bps)
    : { times: history.times, series: undefined };
  const { policy, policy_from: from } = c;
  const classes = shareAt(c, uplink.name)?.classes ?? [];
  const values: [string, string, string][] = [
    ["weight", String(policy.weight), from.weight],
    ["minimum", policy.min_bps ? exactRate(policy.min_bps) : "none", from.min],
    ["maximum", policy.max_bps ? exactRate(policy.max_bps) : "none", from.max],
    ["priority", String(policy.priority), from.priority],
    ["latency", policy.latency_ms ? milliseconds(policy.latency_ms) : "none", from.latency],
    ["class", policy.class || "none", from.class],
    ...(policy.class === "" ? [] : [["EF first up to", part(policy.ef_max), from.ef_max], ["AF before BE", part(policy.af_min), from.af_min]] as [string, string, string][]),
    ["DSCP", policy.dscp || "none", from.dscp],
  ];
  return (
    <section class="detail" aria-label="One container" onKeyDown={(event) => event.key === "Escape" && props.close()}>
      <header>
        <h3 ref={heading} tabIndex={-1}><Name text={c.name} />{isReceived(uplink.name) && " in"}</h3>
        <button type="button" onClick={props.close}>Close</button>
      </header>
      <p>
        {props.gone ? "It has stopped; what it sent before stays here until you close it." : <Name text={why(c, shareAt(c, uplink.name))} />}
        <span class="quiet"> {c.runtime && `${c.runtime}, `}{c.mode}</span>
      </p>
      <dl>
        {values.map(([name, value, layer]) => (
          <div key={name}><dt>{name}</dt><dd>{value} <span class="quiet">{layer}</span></dd></div>
        ))}
      </dl>
      {signedIn() && !props.gone && isReceived(uplink.name) && <p class="nothing">What it receives is changed by <code>weir set {c.name} --in-max</code> and its like.</p>}
      {signedIn() && !props.gone && !isReceived(uplink.name) && (c.runtime === "host"
        ? <p class="nothing">The host's policy is in the configuration file: change it there, then <code>weir reload</code>.</p>
        : <Change key={keyOf(c)} c={c} />)}
      {!props.gone && <Explain c={c} uplink={uplink.name} />}
      {!props.gone && classes.length > 0 && <Classes list={classes} uplink={uplink.name} />}
      {!series ? <p class="nothing">It has no samples at {uplink.name}: none of its traffic leaves there.</p> : (
        <div class="plots">
          <Plot title="Rate" times={times} format={rate} height={180} theme={theme} atLeast={1000} lines={[
            { key: "rate", label: verbOf(uplink.name), values: series.rate, colour: "c1" },
            { key: "wanted", label: "wants", values: series.wanted, colour: "c3", without: (i) => (series.rate[i] == null ? "–" : "more than it gets") },
            { key: "entitled", label: "entitled", values: series.entitled, colour: "mark", dashed: true },
            ...(has(series.min) ? [{ key: "min", label: "minimum", values: series.min, colour: "floor", dashed: true }] : []),
            ...(has(series.max) ? [{ key: "max", label: "maximum", values: series.max, colour: "ceiling", dashed: true }] : []),
          ]} />
          <Plot title="Delay in its queue" times={times} format={milliseconds} height={180} theme={theme} atLeast={1}
            empty={has(series.p99) ? undefined : "No delays: it sent nothing, or this kernel cannot measure them (weir doctor says which)."}
            lines={[
              { key: "p50", label: "median", values: series.p50, colour: "c2" },
              { key: "p99", label: "99th percentile", values: series.p99, colour: "c4" },
            ]} />
          <Plot title="Waiting in its queue" times={times} format={bytes} height={180} theme={theme} atLeast={1500}
            lines={[{ key: "backlog", label: "queued", values: series.backlog, colour: "c5" }]} />
          <Plot title="Dropped from its queue, and marked in it (ECN)" times={times} format={perSecond} height={180} theme={theme} atLeast={1}
            lines={[
              { key: "drops", label: "dropped", values: series.drops, colour: "c6" },
              { key: "marks", label: "marked", values: series.marks, colour: "c0" },
            ]} />
        </div>
      )}
      {!props.gone && policy.class === "auto" && !isReceived(uplink.name) && <Flows c={c} />}
    </section>
  );
}
