// The page of `weir sdn run`: asks it once a second and shows what it says. It only
// looks.

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Numbers } from "./numbers";
import { bytes, counted, rate } from "./format";
import { Grid } from "./grid";
import { Name } from "./name";
import { short } from "./passages";
import { Plot } from "./plot";
import { drawing, network, type SDN, type SDNPort, type SDNSwitch } from "./sdnapi";
import { Shell, State } from "./shell";
import { now, useTheme } from "./theme";
import { Trouble } from "./trouble";
import { useTurns } from "./turns";

const intervalMS = 1000;
// The switch's own port, as OpenFlow numbers it.
const localPort = 0xfffffffe;
// How large the drawing is on the page for what it is in its own units.
const drawingScale = 1.25;
// A drawing is as wide as the page, and scrolls where that is less.
const drawingLeast = 576;
const colours: Record<string, string> = { ef: "c4", af: "c1", be: "c2" };

// Model is all that the page knows.
class Model {
  seen?: SDN;
  drawing = "";
  classes = new Numbers();
  trouble = "";
  answeredAt = now();

  async look(): Promise<void> {
    try {
      [this.seen, this.drawing] = await Promise.all([network(), drawing()]);
      this.answeredAt = now();
      const sent = new Map<string, number>();
      for (const queue of this.seen.switches.flatMap((s) => s.ports).flatMap((p) => p.queues ?? []))
        sent.set(queue.class, (sent.get(queue.class) ?? 0) + queue.rate_bps);
      this.classes.add(this.answeredAt, [...sent]);
      this.trouble = "";
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
    }
  }
}

// portsOf leaves out the switch's own port where it is down.
const portsOf = (s: SDNSwitch) => s.ports.filter((p) => p.up || p.number !== localPort);
const portName = (p: SDNPort) => <Name text={`${p.name} (${p.number === localPort ? "local" : p.number})`} />;
const rateOrNone = (bps?: number) => (bps ? rate(bps) : "–");

// silent says why no queue sends anything: there is none, or none is in force.
function silent(seen: SDN): string | undefined {
  const queued = seen.switches.flatMap((s) => s.ports).filter((p) => p.queues?.length);
  if (queued.length === 0) return "No port has queues.";
  return queued.some((p) => p.state === "ok") ? undefined : "Queues are configured, and none is in force: packets pass them. The ports below say why.";
}

// Drawing shows SVG. As it is parsed apart from the page, nothing in it runs.
function Drawing({ svg }: { svg: string }) {
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const drawn = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
    if (!(drawn instanceof SVGSVGElement)) return;
    const { width } = drawn.viewBox.baseVal;
    drawn.setAttribute("width", String(width * drawingScale));
    drawn.style.minWidth = Math.min(width, drawingLeast) + "px";
    place.current?.replaceChildren(drawn);
  }, [svg]);
  return (
    <div class="wide" tabIndex={0} role="region" aria-label="The network">
      <div class="topology" ref={place} role="img" aria-label="Switches, the links between them and hosts; the tables say the same" />
      <p class="quiet key"><span class="of-switch">■</span> switch <span class="of-host">●</span> host <span class="of-blocked">✕</span> blocked port. Numbers at links are ports, and what they send.</p>
    </div>
  );
}

function Switches({ seen }: { seen: SDN }) {
  return (
    <section>
      <h2>Switches</h2>
      <Grid label="Switches"
        columns={[{ name: "switch" }, { name: "state" }, { name: "flows", number: true }, { name: "ports up", number: true }, { name: "links", number: true }, { name: "hosts", number: true }, { name: "sends", number: true },
          { name: "why", text: true }]}
        rows={seen.switches.map((s) => ({
          key: s.dpid,
          cells: [
            <Name text={short(s.dpid)} />, <State text={s.state} />, s.flows, `${portsOf(s).filter((p) => p.up).length} of ${portsOf(s).length}`,
            s.ports.filter((p) => p.peer_dpid).length, s.ports.reduce((n, p) => n + (p.hosts?.length ?? 0), 0), rate(s.ports.reduce((n, p) => n + p.sent_bps, 0)),
            s.reason ? <Name text={s.reason} /> : "",
          ],
        }))} />
    </section>
  );
}

function portTo(p: SDNPort) {
  if (p.peer_dpid) return <Name text={`${short(p.peer_dpid)} port ${p.peer_port}`} />;
  const hosts = p.hosts ?? [];
  return hosts.length > 1 ? hosts.length + " hosts" : hosts[0] ? <Name text={hosts[0]} /> : "–";
}

function portState(p: SDNPort) {
  const text = p.up ? p.state : "down";
  return text ? <State text={text} /> : "–";
}

function Ports({ seen }: { seen: SDN }) {
  return (
    <section>
      <h2>Ports</h2>
      <Grid label="Ports"
        columns={[{ name: "port" }, { name: "switch" }, { name: "to" }, { name: "sends", number: true }, { name: "receives", number: true }, { name: "may send", number: true },
          { name: "dropped", number: true }, { name: "state" }, { name: "why", text: true }]}
        rows={seen.switches.flatMap((s) => portsOf(s).map((p) => ({
          key: s.dpid + "\n" + p.number,
          cells: [
            portName(p), <Name text={short(s.dpid)} />, portTo(p), rate(p.sent_bps), rate(p.received_bps), rateOrNone(p.rate_bps), p.dropped_packets, portState(p),
            p.reason ? <Name text={p.reason} /> : "",
          ],
        })))} />
    </section>
  );
}

function Queues({ seen }: { seen: SDN }) {
  const rows = seen.switches.flatMap((s) => s.ports.flatMap((p) => (p.queues ?? []).map((q) => ({
    key: [s.dpid, p.number, q.id].join("\n"),
    cells: [
      portName(p), <Name text={short(s.dpid)} />, q.id, [q.class, ...(q.applications ?? [])].join(" "), rateOrNone(q.min_bps), rateOrNone(q.max_bps),
      rate(q.rate_bps), bytes(q.sent_bytes), q.dropped_packets,
    ],
  }))));
  return (
    <section>
      <h2>Queues</h2>
      {rows.length === 0
        ? <p class="nothing">No port has queues: <code>weir sdn run --ovsdb</code> makes them.</p>
        : <Grid label="Queues"
          columns={[{ name: "port" }, { name: "switch" }, { name: "queue", number: true }, { name: "class" }, { name: "at least", number: true }, { name: "at most", number: true },
            { name: "sends", number: true }, { name: "sent", number: true }, { name: "dropped", number: true }]}
          rows={rows} />}
    </section>
  );
}

function Classes({ seen }: { seen: SDN }) {
  return (
    <section>
      <h2>Classes</h2>
      <Grid label="Classes"
        columns={[{ name: "class" }, { name: "flows so far", number: true }, { name: "packets", number: true }, { name: "sent", number: true }]}
        rows={seen.classes.map((c) => ({ key: c.class, cells: [c.class, c.flows, c.sent_packets, bytes(c.sent_bytes)] }))} />
    </section>
  );
}

function App() {
  const model = useRef(new Model()).current;
  useTurns(() => model.look(), intervalMS);
  const theme = useTheme();
  const { seen } = model;
  const names = model.classes.names();
  const flows = seen?.switches.reduce((n, s) => n + s.flows, 0) ?? 0;
  return (
    <Shell here="sdn" title="Weir SDN" old={model.trouble !== ""}
      note={seen ? `${counted(seen.switches.filter((s) => s.connected).length, "switch", "switches")}, ${counted(flows, "flow")}` : ""}>
      <Trouble who="weir sdn run" goesOn="What the switches forward" trouble={model.trouble} seen={seen !== undefined} answeredAt={model.answeredAt} />
      <main>
        {seen && seen.switches.length === 0 && (
          <p class="nothing">No switch has connected yet: <code>ovs-vsctl set-controller BRIDGE tcp:ADDR:6653</code>, where <code>weir sdn run</code> listens.</p>
        )}
        {seen && seen.switches.length > 0 && (
          <>
            <Drawing svg={model.drawing} />
            <Switches seen={seen} />
            <Plot title="What the queues of each class send" times={model.classes.times} height={180} theme={theme} atLeast={1e6} format={rate}
              lines={names.map((name) => ({ key: name, label: name, values: model.classes.of(name), colour: colours[name] ?? "others" }))}
              empty={silent(seen)} />
            <Ports seen={seen} />
            <Queues seen={seen} />
            <Classes seen={seen} />
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
