// The traffic classes of one container, and the flows that are sorted into them.

import { type ClassShare, type Container, flows, mostFlows } from "./api";
import { useAsked } from "./asked";
import { usePages } from "./pages";
import { passages } from "./passages";
import { bytes, milliseconds, rate } from "./format";
import { Grid } from "./grid";
import { Name } from "./name";

const classColumns = [
  { name: "class" }, { name: "has first", number: true }, { name: "sends", number: true },
  { name: "delay: median / 99 %", number: true }, { name: "queued", number: true }, { name: "drops", number: true }, { name: "marks", number: true },
];

function first(s: ClassShare): string {
  if (s.class === "ef") return "up to " + rate(s.max_bps);
  return s.class === "af" ? rate(s.min_bps) : "what is left";
}

export function Classes({ list, uplink }: { list: ClassShare[]; uplink: string }) {
  return (
    <section aria-label="Classes">
      <h4>Classes</h4>
      <Grid label={"Classes at " + uplink} columns={classColumns} rows={list.map((s) => ({
        key: s.class,
        cells: [
          s.class.toUpperCase(), first(s), rate(s.rate_bps),
          s.delay_p99_ms > 0 ? `${Number(s.delay_p50_ms.toPrecision(2))} / ${milliseconds(s.delay_p99_ms)}` : "–",
          bytes(s.backlog_bytes), s.dropped_packets, s.marked_packets,
        ],
      }))} />
    </section>
  );
}

const flowColumns = [
  { name: "flow" }, { name: "type" }, { name: "class" }, { name: "stage", number: true },
  { name: "confidence", number: true }, { name: "sent", number: true }, { name: "received", number: true },
];

// verdictBy is what gave a verdict, by its stage.
const verdictBy = ["none yet", "1: first packet", "2: first six"];

// Flows are those of a container whose class is auto.
export function Flows({ c }: { c: Container }) {
  const switches = usePages().some((page) => page.kind === "sdn");
  const { answer, trouble } = useAsked(async () => {
    const list = await flows(c.id);
    // Without the switches' answer the flows are as known as before.
    return { list, ways: switches ? await passages(list, c.policy.dscp === "mark" || c.policy.dscp === "both").catch((error) => list.map(() => String(error instanceof Error ? error.message : error))) : undefined };
  }, c.id + switches);
  const list = answer?.list;
  return (
    <section aria-label="Flows">
      <h4>Flows</h4>
      {trouble !== "" && <p class="trouble" role="alert"><Name text={trouble} /></p>}
      {list === undefined && trouble === "" && <p class="nothing" role="status">Waiting for its flows.</p>}
      {list?.length === 0 && <p class="nothing">No flow of it was seen lately: it neither sends nor receives over TCP or UDP.</p>}
      {list && list.length > 0 && (
        <Grid label={"Flows of " + c.name} columns={answer?.ways ? [...flowColumns, { name: "at switches", text: true }] : flowColumns} rows={list.map((f, i) => ({
          key: [f.protocol, f.initiator, f.responder].join(" "),
          cells: [
            <>{f.protocol} <Name text={f.initiator} /> → <Name text={f.responder} /></>,
            f.application || "not known", f.class ? f.class.toUpperCase() : "BE, no verdict", verdictBy[f.stage] ?? f.stage,
            f.class ? Math.round(100 * f.confidence) + "%" : "–", bytes(f.sent_bytes), bytes(f.received_bytes),
            ...(answer?.ways ? [<Name text={answer.ways[i] ?? ""} />] : []),
          ],
        }))} />
      )}
      {list?.length === mostFlows && <p class="quiet">These are the {mostFlows} seen last; <code>weir flows</code> has more.</p>}
    </section>
  );
}
