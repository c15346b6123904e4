// weir-edge's page: asks it once a second and shows what it says. It only looks.

import { render } from "preact";
import { useRef, useState } from "preact/hooks";
import { type EdgeEvent, type EdgeNode, type EdgeSnapshot, edgeEvents, edgeSnapshot } from "./edgeapi";
import { Numbers } from "./numbers";
import { milliseconds, rate } from "./format";
import { Grid } from "./grid";
import { Name } from "./name";
import { type Line, Plot } from "./plot";
import { now, useTheme } from "./theme";
import { Trouble } from "./trouble";
import { useTurns } from "./turns";

const intervalMS = 1000;
const shownEvents = 100;
// More lines than colours cannot be told apart.
const colours = 8;

// Model is all that the page knows.
class Model {
  seen?: EdgeSnapshot;
  users = new Numbers();
  uplinks = new Numbers();
  events: EdgeEvent[] = []; // newest first
  trouble = "";
  answeredAt = now();
  private lastEvent = 0;

  async look(): Promise<void> {
    try {
      const [seen, news] = await Promise.all([edgeSnapshot(), edgeEvents(this.lastEvent)]);
      this.seen = seen;
      this.answeredAt = now();
      this.users.add(this.answeredAt, (seen.services ?? []).map((s) => [s.name, s.users]));
      this.uplinks.add(this.answeredAt, (seen.nodes ?? []).filter((n) => n.state !== "gone").map((n) => [n.name, n.uplink_sent_bps]));
      this.lastEvent = news.at(-1)?.seq ?? this.lastEvent;
      this.events = [...news.reverse(), ...this.events].slice(0, shownEvents);
      this.trouble = "";
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
    }
  }
}

// lines are the series of names, each with its colour.
function lines(numbers: Numbers): Line[] {
  return numbers.names().slice(0, colours).map((name, i) => ({ key: name, label: <Name text={name} />, values: numbers.of(name), colour: "c" + i }));
}

const percent = (part: number, whole: number) => (whole > 0 ? Math.round((100 * part) / whole) + " %" : "–");

// measured: an agent says what the node uses, which is never nothing.
const measured = (n: EdgeNode) => n.weir || n.cpu_used_percent > 0 || n.memory_used_bytes > 0;

// State is how a state looks: good, doubtful or bad.
function State({ text }: { text: string }) {
  const kind = ["ready", "running"].includes(text) ? "ok" : ["gone", "failed", "unhealthy"].includes(text) ? "rejected" : "degraded";
  return <span class={"state " + kind}>{text}</span>;
}

function Nodes({ seen }: { seen: EdgeSnapshot }) {
  const nodes = seen.nodes ?? [];
  return (
    <section>
      <h2>Nodes</h2>
      {nodes.length === 0 && <p class="nothing">No node is known yet.</p>}
      <Grid label="Nodes"
        columns={[{ name: "node" }, { name: "state" }, { name: "instances", number: true }, { name: "processors", number: true }, { name: "memory", number: true },
          { name: "uplink", number: true }, { name: "sends", number: true }, { name: "promised", number: true }, { name: "free", number: true }, { name: "why", text: true }]}
        rows={nodes.map((n) => ({
          key: n.name,
          cells: [
            <Name text={n.name} />, <State text={n.state} />, n.instances, ...(measured(n)
              ? [Math.round(n.cpu_used_percent) + " %", percent(n.memory_used_bytes, n.memory_bytes), n.uplink_bps ? rate(n.uplink_bps) : "–", rate(n.uplink_sent_bps)]
              : ["–", "–", "–", "–"]),
            rate(n.promised_bps), rate(n.free_bps),
            n.reason ? <Name text={n.reason} /> : n.weir ? "" : "no Weir agent: no minimum can be promised there",
          ],
        }))} />
    </section>
  );
}

// response is how long users wait, and until when, if that is not when they have the last byte.
function response(of: { response_ms: number; response_end?: string }) {
  if (!(of.response_ms > 0)) return "–";
  return milliseconds(of.response_ms) + (of.response_end && of.response_end !== "delivered" ? " " + of.response_end : "");
}

function Services({ seen }: { seen: EdgeSnapshot }) {
  const services = seen.services ?? [];
  const now = (name: string) => (seen.decisions ?? []).filter((d) => d.service === name).map((d) => d.action + ": " + d.reason).join("; ");
  return (
    <section>
      <h2>Services</h2>
      {services.length === 0
        ? <p class="nothing">No service is deployed: <code>weir-edge deploy FILE</code> deploys one.</p>
        : <Grid label="Services"
          columns={[{ name: "service" }, { name: "users", number: true }, { name: "wait", number: true }, { name: "instances", number: true },
            { name: "response", number: true }, { name: "95th percentile", number: true }, { name: "minimum of all users", number: true }, { name: "requests", number: true }, { name: "failed", number: true }, { name: "decided now", text: true }]}
          rows={services.map((s) => ({
            key: s.name,
            cells: [
              <Name text={s.name} />, s.users, s.waiting, `${s.running} of ${s.instances}`, response(s),
              s.response_p95_ms > 0 ? milliseconds(s.response_p95_ms) : "–",
              s.min_bps ? rate(s.min_bps) : "–",
              s.requests, s.failed_requests, <Name text={s.reason ?? now(s.name)} />,
            ],
          }))} />}
    </section>
  );
}

function Instances({ seen }: { seen: EdgeSnapshot }) {
  const instances = seen.instances ?? [];
  if (instances.length === 0) return null;
  return (
    <section>
      <h2>Instances</h2>
      <Grid label="Instances"
        columns={[{ name: "instance" }, { name: "node" }, { name: "state" }, { name: "users", number: true }, { name: "response", number: true },
          { name: "of the minimum", number: true }, { name: "why", text: true }]}
        rows={instances.map((i) => ({
          key: i.service + "\n" + i.instance,
          cells: [
            <Name text={i.instance || i.service} />, i.node ? <Name text={i.node} /> : "–", <State text={i.state} />, i.users,
            response(i), i.service_min_bps ? rate(i.min_bps) + " of " + rate(i.service_min_bps) : "–", i.reason ? <Name text={i.reason} /> : "",
          ],
        }))} />
    </section>
  );
}

function Events({ list }: { list: EdgeEvent[] }) {
  return (
    <section aria-label="Decisions and events">
      <h2>Decisions and events</h2>
      {list.length === 0 && <p class="nothing">Nothing has happened yet.</p>}
      <ol class="events" tabIndex={list.length > 0 ? 0 : -1} aria-label="Decisions and events, newest first">
        {list.map((e) => (
          <li key={e.seq}>
            <time dateTime={e.at}>{new Date(e.at).toLocaleTimeString()}</time>
            <span class={"kind " + (e.kind === "failed" ? "refused" : e.kind)}>{(e.decision?.action ?? e.kind) + (e.dry_run ? " (dry run)" : "")}</span>
            <span><Name text={e.instance || e.service || e.node || ""} /> <Name text={e.message} /></span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function App() {
  const model = useRef(new Model()).current;
  useTurns(() => model.look(), intervalMS);
  const [blurred, blur] = useState(false);
  const theme = useTheme();
  const { seen } = model;
  const count = (value: number) => String(Math.round(value));
  return (
    <div class={(blurred ? "blurred " : "") + (model.trouble !== "" ? "old" : "")}>
      <header class="top">
        <h1>Weir edge</h1>
        <span class="quiet">{seen ? `${seen.version}, ${seen.engine}` : ""}</span>
        <button type="button" aria-pressed={blurred} onClick={() => blur(!blurred)}>Blur names</button>
      </header>
      <Trouble who="weir-edge" goesOn="What runs" trouble={model.trouble} seen={seen !== undefined} answeredAt={model.answeredAt} />
      {seen?.dry_run && <p class="nothing" role="status">A dry run: what is decided is not done.</p>}
      <main>
        {seen && (
          <>
            <div class="plots">
              <Plot title="Users of each service" times={model.users.times} lines={lines(model.users)} format={count} height={180} theme={theme} atLeast={10}
                empty={model.users.names().length === 0 ? "No service is deployed." : undefined} />
              <Plot title="What each node sends" times={model.uplinks.times} lines={lines(model.uplinks)} format={rate} height={180} theme={theme} atLeast={1e6}
                empty={model.uplinks.names().length === 0 ? "No node answers." : undefined} />
            </div>
            <Services seen={seen} />
            <Nodes seen={seen} />
            <Instances seen={seen} />
            <Events list={model.events} />
          </>
        )}
      </main>
    </div>
  );
}

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(<App />, place);
}
