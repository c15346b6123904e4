// weir-edge's page: asks it once a second and shows what it says. It only looks.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { useAsked } from "./asked";
import { type EdgeDecision, type EdgeEvent, type EdgeNode, type EdgeService, type EdgeSnapshot, edgeEvents, edgeExplanation, edgeSnapshot } from "./edgeapi";
import { Numbers } from "./numbers";
import { counted, milliseconds, rate } from "./format";
import { Grid } from "./grid";
import { Name } from "./name";
import { usePages } from "./pages";
import { short } from "./passages";
import { type Line, Plot } from "./plot";
import { promises } from "./sdnapi";
import { Shell, State } from "./shell";
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

// NodeName is a node's name. It opens the page of the node's agent, if it has one.
function NodeName({ name, seen }: { name: string; seen: EdgeSnapshot | undefined }) {
  if (!seen?.nodes?.some((n) => n.name === name && n.weir)) return <Name text={name} />;
  return <a href={`nodes/${encodeURIComponent(name)}/`}><Name text={name} /></a>;
}

// users are those of a service or an instance, and how many of a service's wait for one.
const users = (of: { users: number; waiting?: number }) => of.users + (of.waiting ? ` (${of.waiting} wait)` : "");

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
            <NodeName name={n.name} seen={seen} />, <State text={n.state} />, n.instances, ...(measured(n)
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

// decided is a decision in words.
function decided(d: EdgeDecision): string {
  const act = { keep: "no change", start: "starts one", stop: "ends one", move: "moves one" }[d.action] ?? d.action;
  return `${act}${d.node ? " on " + d.node : ""}: ${d.reason}`;
}

function Services({ seen, opened, open }: { seen: EdgeSnapshot; opened: string; open: (name: string) => void }) {
  const services = seen.services ?? [];
  const now = (name: string) => (seen.decisions ?? []).filter((d) => d.service === name).map(decided).join("; ");
  return (
    <section>
      <h2>Services</h2>
      {services.some((s) => s.waiting > 0) && <p class="quiet">Users who wait have no place at an instance yet.</p>}
      {services.length === 0
        ? <p class="nothing">No service is deployed: <code>weir-edge deploy FILE</code> deploys one.</p>
        : <Grid label="Services"
          columns={[{ name: "service" }, { name: "users", number: true }, { name: "instances", number: true },
            { name: "response", number: true }, { name: "95th percentile", number: true }, { name: "minimum of all users", number: true }, { name: "requests", number: true }, { name: "failed", number: true }, { name: "decided now", text: true }]}
          rows={services.map((s) => ({
            key: s.name,
            cells: [
              <button type="button" aria-expanded={s.name === opened} onClick={() => open(s.name === opened ? "" : s.name)}><Name text={s.name} /></button>,
              users(s), `${s.running} of ${s.instances}`, response(s),
              s.response_p95_ms > 0 ? milliseconds(s.response_p95_ms) : "–",
              bothRates(s.min_bps, s.in_min_bps),
              s.requests, s.failed_requests, <Name text={s.reason ?? now(s.name)} />,
            ],
          }))} />}
    </section>
  );
}

// Decision is a decision, what else could have been done, and which nodes could not be chosen.
function Decision({ d }: { d: EdgeDecision }) {
  return (
    <li>
      <Name text={decided(d)} />
      <ul>
        {(d.alternatives ?? []).map((a) => (
          <li key={a.node}>
            on <Name text={a.node} />: ready in {((a.transfer_seconds ?? 0) + (a.start_up_seconds ?? 0)).toFixed(1)} s, users would
            wait {milliseconds(1000 * (a.response_seconds ?? 0))}{a.refused && <>; not taken: <Name text={a.refused} /></>}
          </li>
        ))}
        {(d.excluded ?? []).map((e) => <li key={e.reason}>not on <Name text={e.example} />: <Name text={e.reason} /> ({counted(e.nodes, "node")})</li>)}
      </ul>
    </li>
  );
}

// bothRates are a minimum of what users get and, after "in", one of what they send.
function bothRates(out?: number, received?: number, of = (bps: number, _received: boolean) => rate(bps)) {
  return [out ? of(out, false) : "", received ? "in " + of(received, true) : ""].filter(Boolean).join(", ") || "–";
}

// Claims are where the minimum of a service holds.
function Claims({ service, seen }: { service: EdgeService; seen: EdgeSnapshot | undefined }) {
  const bps = (value?: number) => (value ? rate(value) : "–");
  return (
    <>
      <h4>Where its minimum of {bothRates(service.min_bps, service.in_min_bps)} holds: at the uplinks of nodes</h4>
      <Grid label={"Minimum of " + service.name}
        columns={[{ name: "node" }, { name: "users", number: true }, { name: "relayed of it", number: true }, { name: "acknowledgements", number: true }, { name: "sent to others", number: true },
          { name: "passed on", number: true }, { name: "starting", number: true }, { name: "promised", number: true }, { name: "in force", number: true }, { name: "why", text: true }]}
        rows={(service.claims ?? []).map((c) => ({
          key: c.node + (c.in ? "\nin" : ""),
          cells: [
            <><NodeName name={c.node} seen={seen} />{c.in && ", in"}</>, bps(c.users_bps), bps(c.relayed_bps), bps(c.ack_bps), bps(c.sent_bps), bps(c.forwarded_bps), bps(c.starting_bps), bps(c.promised_bps), bps(c.in_force_bps),
            c.reason ? <Name text={c.reason} /> : "",
          ],
        }))} />
    </>
  );
}

// OnLinks are the promises of a service on the links between switches, where weir sdn run has a page here.
function OnLinks({ service }: { service: string }) {
  const { answer } = useAsked(promises, service);
  const list = (answer ?? []).filter((p) => p.service === service);
  return (
    <>
      <h4>On links between switches</h4>
      {answer && list.length === 0 && <p class="quiet">Nothing is promised there.</p>}
      {list.length > 0 && <Grid label={"Links of " + service}
        columns={[{ name: "from" }, { name: "to" }, { name: "minimum", number: true }, { name: "back", number: true }, { name: "switches" }, { name: "state" }, { name: "why", text: true }]}
        rows={list.map((p) => ({
          key: p.id,
          cells: [
            <Name text={p.node} />, <Name text={p.peer} />, p.min_bps ? rate(p.min_bps) : "–", p.back_bps ? rate(p.back_bps) : "–",
            <Name text={(p.path ?? []).map((hop) => `${short(hop.dpid)}:${hop.out}`).join(", ")} />, <State text={p.state} />, p.reason ? <Name text={p.reason} /> : "",
          ],
        }))} />}
    </>
  );
}

// Service is one service: why it has the instances that it has, as weir-edge explain says it.
function Service({ name, seen, close }: { name: string; seen: EdgeSnapshot | undefined; close: () => void }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), [name]);
  const { answer, trouble } = useAsked(() => edgeExplanation(name), name);
  const switches = usePages().some((page) => page.kind === "sdn");
  return (
    <section class="detail explain" aria-label="One service" onKeyDown={(event) => event.key === "Escape" && close()}>
      <header>
        <h3 ref={heading} tabIndex={-1}><Name text={name} /></h3>
        <button type="button" onClick={close}>Close</button>
      </header>
      {trouble !== "" && <p class="trouble" role="alert"><Name text={trouble} /></p>}
      {!answer && trouble === "" && <p class="nothing" role="status">Waiting for weir-edge's reasons.</p>}
      {answer && (
        <>
          <p class="quiet"><Name text={answer.service.image} /></p>
          <h4>Now</h4>
          <ul>{(answer.now ?? []).map((d, i) => <Decision key={i} d={d} />)}</ul>
          {(answer.service.min_bps !== undefined || answer.service.in_min_bps !== undefined) && <Claims service={answer.service} seen={seen} />}
          {answer.service.min_bps !== undefined && switches && <OnLinks service={name} />}
          <h4>Earlier</h4>
          {(answer.earlier ?? []).length === 0 ? <p class="quiet">Nothing has changed.</p> : <EventList list={answer.earlier ?? []} label="Earlier" />}
        </>
      )}
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
            <Name text={i.instance || i.service} />, i.node ? <NodeName name={i.node} seen={seen} /> : "–", <State text={i.state} />, users({ users: i.users + (i.waiting ?? 0), waiting: i.waiting }),
            response(i), bothRates(i.service_min_bps, i.service_in_min_bps, (bps, received) => rate((received ? i.in_min_bps : i.min_bps) ?? 0) + " of " + rate(bps)), i.reason ? <Name text={i.reason} /> : "",
          ],
        }))} />
    </section>
  );
}

function EventList({ list, label }: { list: EdgeEvent[]; label: string }) {
  return (
    <ol class="events" tabIndex={list.length > 0 ? 0 : -1} aria-label={label}>
      {list.map((e) => (
        <li key={e.seq}>
          <time dateTime={e.at}>{new Date(e.at).toLocaleTimeString()}</time>
          <span class={"kind " + (e.kind === "failed" ? "refused" : e.kind)}>{(e.decision?.action ?? e.kind) + (e.dry_run ? " (dry run)" : "")}</span>
          <span><b><Name text={e.instance || e.service || e.node || ""} /></b> <Name text={e.message} /></span>
        </li>
      ))}
    </ol>
  );
}

function Events({ list }: { list: EdgeEvent[] }) {
  return (
    <section aria-label="Decisions and events">
      <h2>Decisions and events</h2>
      {list.length === 0 && <p class="nothing">Nothing has happened yet.</p>}
      <EventList list={list} label="Decisions and events, newest first" />
    </section>
  );
}

function App() {
  const model = useRef(new Model()).current;
  useTurns(() => model.look(), intervalMS);
  const [opened, open] = useState("");
  const theme = useTheme();
  const { seen } = model;
  const close = () => {
    open("");
    document.querySelector<HTMLElement>("[aria-label=Services] button[aria-expanded=true]")?.focus();
  };
  const count = (value: number) => String(Math.round(value));
  return (
    <Shell here="edge" title="Weir edge" note={seen ? `${seen.version}, ${seen.engine}` : ""} old={model.trouble !== ""}>
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
            <Services seen={seen} opened={opened} open={open} />
            {opened !== "" && <Service name={opened} seen={seen} close={close} />}
            <Nodes seen={seen} />
            <Instances seen={seen} />
            <Events list={model.events} />
          </>
        )}
      </main>
    </Shell>
  );
}

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(<App />, place);
}
