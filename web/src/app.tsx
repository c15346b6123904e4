// The dashboard: shows what the agent says once a second.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Container, type Event, events, lastMinutes, type Snapshot, snapshots, type Uplink } from "./api";
import { Detail } from "./detail";
import { exactRate, rate, seconds, visible } from "./format";
import { History } from "./history";
import { Name } from "./name";
import { node } from "./pages";
import { receivedBy, receives, verbOf } from "./received";
import { Shell } from "./shell";
import { SignIn } from "./signin";
import { coloursOf, Stack } from "./stack";
import { rowKey, Table, type Way } from "./table";
import { now, useTheme } from "./theme";
import { useTurns } from "./turns";
import { noContainers, policyText } from "./words";

const intervalMS = 1000;
const shownEvents = 100;
// An agent that has not looked for so long is said to be slow.
const slowMS = 3000;
// The agent is asked for the minutes before the page was opened of so many containers: one request each.
const mostRemembered = 32;

// Model is all that the page knows.
class Model {
  seen?: Snapshot;
  history = new History();
  events: Event[] = []; // newest first
  trouble = "";
  // newer is the version of an agent that came after the one that the page is of.
  newer = "";
  // answeredAt is when the agent did, on the clock of the plots.
  answeredAt = now();
  private lastEvent = 0;
  private first = "";

  // look takes what the agent says and draws it, until that ends.
  async look(draw: () => void): Promise<void> {
    try {
      for await (const seen of snapshots()) {
        await this.take(seen);
        draw();
      }
    } catch (error) {
      this.trouble = error instanceof Error ? error.message : String(error);
    }
  }

  private async take(seen: Snapshot): Promise<void> {
    const { version, last_event: lastEvent } = seen.status;
    // An older agent does not say.
    const news = lastEvent === this.lastEvent ? [] : await events(this.lastEvent);
    this.newer = this.seen && this.first !== version ? version : "";
    const isFirst = !this.seen;
    if (isFirst) this.first = version;
    this.seen = seen;
    this.answeredAt = now();
    this.history.add(this.answeredAt, seen);
    if (isFirst) void this.remember(seen.containers ?? []);
    // A snapshot from the cache may be older than the events that came after the one before.
    this.lastEvent = news.at(-1)?.seq ?? Math.max(lastEvent ?? 0, this.lastEvent);
    this.events = [...news.reverse(), ...this.events].slice(0, shownEvents);
    this.trouble = "";
  }

  private async remember(containers: Container[]): Promise<void> {
    if (containers.length > mostRemembered) return;
    // Of one without an answer the plots begin when the page was opened.
    const known = await Promise.all(containers.map(async (c) => ({ c, shares: await lastMinutes(c.id).catch(() => []) })));
    this.history.remember(now(), known);
  }
}

// Upgraded gets the page of a newer agent, but for who is writing something on this one.
function Upgraded({ version }: { version: string }) {
  const writing = document.querySelector(".change, .signin input") !== null;
  useEffect(() => {
    if (version !== "" && !writing) location.reload();
  }, [version, writing]);
  if (version === "" || !writing) return null;
  return (
    <p class="trouble" role="alert">
      The agent is version {version} now, and this page is of the one before. <button type="button" onClick={() => location.reload()}>Load it again</button>
    </p>
  );
}

function Trouble({ model }: { model: Model }) {
  const status = model.seen?.status;
  if (model.trouble !== "")
    return (
      <p class="trouble" role="alert">
        {model.seen ? `No answer from the agent for ${seconds(now() - model.answeredAt)}: ` : "No answer from the agent yet: "}
        <Name text={model.trouble} />. It may have stopped, or be starting again (<code>systemctl status weir</code> says so);
        the page goes on by itself.{model.seen && " What is below is what it said last."}
      </p>
    );
  if (!status) return <p class="nothing" role="status">Waiting for the agent's first answer.</p>;
  const slow = status.age_ms > slowMS ? [`the agent looked ${seconds(status.age_ms / 1000)} ago for the last time`] : [];
  const lost = (status.sources ?? []).filter((s) => !s.connected).map((s) => `${s.name}: ${s.reason}`);
  const all = [...(status.reason ? [status.reason] : []), ...slow, ...lost];
  return all.length === 0 ? null : <p class="trouble" role="alert"><Name text={all.join("; ")} /></p>;
}

function UplinkView(props: { uplink: Uplink; model: Model; theme: string }) {
  const { uplink, model, theme } = props;
  const [selected, select] = useState("");
  // kept is the chosen container as it was last, for when it has stopped.
  const kept = useRef<{ c: Container; uplink: Uplink }>();
  const containers = model.seen?.containers ?? [];
  const received = receivedBy(uplink);
  const ways: Way[] = [{ uplink, containers }, ...(received ? [{ uplink: received, containers: containers.map(receives) }] : [])];
  const chosen = ways.flatMap((way) => way.containers.map((c) => ({ c, uplink: way.uplink }))).find(({ c, uplink: at }) => rowKey(c, at.name) === selected);
  if (chosen) kept.current = chosen;
  const shown = selected === "" ? undefined : kept.current;
  const close = () => {
    select("");
    document.querySelector<HTMLElement>("tr.selected button")?.focus();
  };
  const colours = coloursOf(model.history, uplink.name, containers);
  // The host's class is always there.
  const alone = containers.every((c) => c.runtime === "host");
  return (
    <section class="uplink" aria-label={"Uplink " + uplink.name}>
      <h2><Name text={uplink.name} /></h2>
      {!uplink.present && <p class="nothing">The device is not there; it is shared out as soon as it comes.</p>}
      <div class="plots">
        {ways.map((way) => (
          <div key={way.uplink.name}>
            <Facts {...way} />
            <Stack {...way} history={model.history} colours={colours} theme={theme} />
          </div>
        ))}
      </div>
      {shown && <Detail c={shown.c} gone={!chosen} uplink={shown.uplink} history={model.history} theme={theme} close={close} />}
      {alone && model.seen && <p class="nothing"><Name text={noContainers(model.seen)} /></p>}
      <Table ways={ways} history={model.history} colours={colours} selected={selected} choose={select} />
    </section>
  );
}

// Facts is what an uplink sends or receives, in one line.
function Facts({ uplink, containers }: Way) {
  const mins = containers.reduce((sum, c) => sum + c.policy.min_bps, 0);
  const used = uplink.rate_bps > 0 ? ` (${Math.round((100 * uplink.sent_bps) / uplink.rate_bps)} %)` : "";
  return (
    <p class="facts">
      <span>{verbOf(uplink.name)} <b>{rate(uplink.sent_bps)}</b> of <b>{exactRate(uplink.rate_bps)}</b>{used}</span>
      <span>minimums ask for <b>{rate(mins)}</b> of {rate(uplink.rate_bps - uplink.reserve_bps)}</span>
      <span class="quiet" title="how Linux divides the rate among containers, and how it queues the packets of each">queues: {uplink.scheduler || "none"}</span>
      {uplink.state !== "ok" && <span><span class={"state " + uplink.state}>{uplink.state}</span> <Name text={uplink.reason} /></span>}
    </p>
  );
}

function Events({ list, theAgentAnswered }: { list: Event[]; theAgentAnswered: boolean }) {
  return (
    <section aria-label="Events">
      <h2>Events</h2>
      {list.length === 0 && (
        <p class="nothing">{theAgentAnswered ? "Nothing has happened since the agent began to keep events." : "None are known before the agent answers."}</p>
      )}
      <ol class="events" tabIndex={list.length > 0 ? 0 : -1} aria-label="Events, newest first">
        {list.map((e) => (
          <li key={e.seq}>
            <time dateTime={e.at}>{new Date(e.at).toLocaleTimeString()}</time>
            <span class={"kind " + e.kind}>{e.kind.replaceAll("_", " ")}</span>
            <span>
              {e.container && <><Name text={e.container} /> </>}
              {e.uplink && <><Name text={e.uplink} /> </>}
              {e.policy && <span class="quiet">{policyText(e.policy)}{e.in && "; in: " + policyText({ ...e.in, class: "" })} </span>}
              {e.message && <Name text={e.message} />}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function App() {
  const model = useRef(new Model()).current;
  const again = useTurns((draw) => model.look(draw), intervalMS);
  const theme = useTheme();
  const status = model.seen?.status;
  const uplinks = status?.uplinks ?? [];
  useEffect(() => {
    if (node !== "") document.title = "Weir on " + visible(node);
  }, []);
  return (
    <Shell here="agent" title="Weir" note={status?.version} old={model.trouble !== ""} actions={node === "" && <SignIn changed={again} />}>
      <Trouble model={model} />
      <Upgraded version={model.newer} />
      <main>
        {status && uplinks.length === 0 && <p class="nothing">The agent shares out no uplink: give it one with --uplink, or in its configuration file.</p>}
        {uplinks.map((uplink) => <UplinkView key={uplink.name} uplink={uplink} model={model} theme={theme} />)}
        {status && <Events list={model.events} theAgentAnswered={model.seen !== undefined} />}
      </main>
    </Shell>
  );
}

const place = document.getElementById("app");
if (place) {
  place.textContent = "";
  render(<App />, place);
}
