// What all pages have around them: a bar with the way to the others, and names that can be
// made unreadable.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { Name } from "./name";
import { type Kind, node, usePages } from "./pages";

const names: Record<Kind, string> = { agent: "Containers", edge: "Services", sdn: "Switches" };

function Pages({ here }: { here: Kind }) {
  const open = new Map(usePages().map((page) => [page.kind, page.url]));
  if (node !== "") open.set("edge", "../../");
  const shown = (Object.keys(names) as Kind[]).filter((kind) => kind === here || open.has(kind));
  if (shown.length < 2) return null;
  return (
    <nav aria-label="Pages of Weir">
      <ul class="pages">
        {shown.map((kind) => (
          <li key={kind}>{kind === here ? <b aria-current="page">{names[kind]}</b> : <a href={open.get(kind)}>{names[kind]}</a>}</li>
        ))}
      </ul>
    </nav>
  );
}

interface Props {
  here: Kind;
  title: string;
  note?: string;
  // old: what is shown is what was said last.
  old: boolean;
  // actions stand in the bar.
  actions?: ComponentChildren;
  children: ComponentChildren;
}

export function Shell({ here, title, note, old, actions, children }: Props) {
  const [blurred, blur] = useState(false);
  return (
    <div class={(blurred ? "blurred " : "") + (old ? "old" : "")}>
      <header class="top">
        <h1>{title}{node !== "" && <> on <Name text={node} /></>}</h1>
        <span class="quiet">{note}</span>
        <Pages here={here} />
        {actions}
        <button type="button" aria-pressed={blurred} onClick={() => blur(!blurred)}>Blur names</button>
      </header>
      {children}
    </div>
  );
}

const good = ["in force", "ok", "ready", "running"];
const bad = ["blocked", "broken", "down", "failed", "gone", "lost", "refused", "rejected", "unhealthy"];

// State is how a state looks: good, doubtful or bad.
export function State({ text }: { text: string }) {
  return <span class={"state " + (good.includes(text) ? "ok" : bad.includes(text) ? "rejected" : "degraded")}>{text}</span>;
}
