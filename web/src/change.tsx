// An administrator's form: a change is previewed before it is made, and made only if
// the policy is still the one that the form was opened with.

import { useEffect, useRef, useState } from "preact/hooks";
import { change, type Container, type Part, type Policy, type PolicyChange, policyTag, type Preview, preview } from "./api";
import { exactRate, part, rate } from "./format";
import { Name } from "./name";

type Field = keyof PolicyChange;

const classes = ["none", "ef", "af", "be", "auto"];
const dscpUses = ["none", "trust", "mark", "both"];

const fields: { name: Field; label: string; hint: string; choices?: string[] }[] = [
  { name: "weight", label: "Weight", hint: "0 to 10000" },
  { name: "min", label: "Minimum", hint: "such as 20mbit, or none" },
  { name: "max", label: "Maximum", hint: "such as 50mbit, or none" },
  { name: "priority", label: "Priority", hint: "0 to 1000" },
  { name: "latency", label: "Latency", hint: "such as 20ms, or none" },
  { name: "class", label: "Class", hint: "auto: of each flow by itself", choices: classes },
  { name: "ef_max", label: "EF goes first up to", hint: "such as 50%, or 2mbit" },
  { name: "af_min", label: "AF before BE", hint: "such as 30%, or 2mbit" },
  { name: "dscp", label: "DSCP", hint: "trust: it decides the class; mark: it is set to the class", choices: dscpUses },
];

type Values = Record<Field, string>;

function valuesOf(p: Policy): Values {
  return {
    weight: String(p.weight), priority: String(p.priority),
    min: p.min_bps ? exactRate(p.min_bps) : "none", max: p.max_bps ? exactRate(p.max_bps) : "none",
    latency: p.latency_ms ? p.latency_ms + "ms" : "none",
    class: p.class || "none", ef_max: part(p.ef_max), af_min: part(p.af_min), dscp: p.dscp || "none",
  };
}

// changes are the values that are not as they were.
function changes(was: Values, is: Values): PolicyChange {
  const made: PolicyChange = {};
  for (const { name } of fields) if (is[name].trim() !== was[name]) made[name] = is[name].trim();
  return made;
}

export function Change({ c }: { c: Container }) {
  const [was, setWas] = useState(() => valuesOf(c.policy));
  const [is, setIs] = useState(was);
  const [shown, show] = useState<Preview>();
  const [said, say] = useState("");
  const [busy, setBusy] = useState(false);
  const [ready, setReady] = useState(false); // what is written before the policy is known would be lost
  const etag = useRef("");
  const latest = useRef(c);
  latest.current = c;

  // open takes the policy as it is now; the snapshot may be a second old.
  const open = async () => {
    etag.current = await policyTag(c.id);
    const values = valuesOf(latest.current.policy);
    setWas(values);
    setIs(values);
    show(undefined);
    setReady(true);
  };
  const run = async (work: () => Promise<string>) => {
    setBusy(true);
    try {
      say(await work());
    } catch (error) {
      say(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  useEffect(() => void run(async () => (await open(), "")), [c.id]);

  const made = changes(was, is);
  const anything = Object.keys(made).length > 0;
  const write = (name: Field, value: string) => {
    setIs({ ...is, [name]: value });
    show(undefined);
  };
  const look = (event: SubmitEvent) => {
    event.preventDefault();
    void run(async () => {
      show(await preview(c.id, made));
      return "";
    });
  };
  const make = (wanted: PolicyChange | undefined) => run(async () => {
    await change(c.id, etag.current, wanted);
    await new Promise((done) => setTimeout(done, 1100)); // the next snapshot has it
    await open();
    return wanted ? "Changed." : "Back to its labels and the configuration.";
  });
  return (
    <form class="change" onSubmit={look} aria-label="Change its policy">
      <div class="fields">
        {fields.map(({ name, label, hint, choices }) => (
          <label key={name}>
            {label}
            {choices
              ? <select name={name} value={is[name]} disabled={!ready} aria-describedby={"hint-" + name}
                  onChange={(event) => write(name, event.currentTarget.value)}>
                  {choices.map((choice) => <option key={choice} value={choice}>{choice}</option>)}
                </select>
              : <input name={name} value={is[name]} autocomplete="off" spellcheck={false} readOnly={!ready} aria-describedby={"hint-" + name}
                  onInput={(event) => write(name, event.currentTarget.value)} />}
            <small id={"hint-" + name} class="quiet">{hint}</small>
          </label>
        ))}
      </div>
      <p class="actions">
        <button type="submit" disabled={busy || !anything}>Preview</button>
        <button type="button" disabled={busy || !shown || shown.refused !== undefined} onClick={() => void make(made)}>Apply</button>
        <button type="button" disabled={busy} onClick={() => void make(undefined)}>Back to its labels</button>
        <span role="status"><Name text={said} /></span>
      </p>
      {shown && <Shown preview={shown} id={c.id} />}
    </form>
  );
}

// InClasses is what a change does to the order of a container's own packets at an uplink.
function InClasses({ before, after, hasBPS }: { before: Policy; after: Policy; hasBPS: number }) {
  const same = (a: Part, b: Part) => a.bps === b.bps && a.percent === b.percent;
  if (before.class === after.class && same(before.ef_max, after.ef_max) && same(before.af_min, after.af_min)) return null;
  if (after.class === "") return <p>It has no classes then: its packets wait in one queue.</p>;
  const of = (p: Part) => p.bps || (hasBPS * p.percent) / 100;
  return (
    <p>
      Class {before.class || "none"} → <b>{after.class}</b>. Of what it gets now, EF goes first
      up to {part(before.ef_max)} → <b>{part(after.ef_max)}</b> ({rate(Math.min(hasBPS, of(after.ef_max)))}), AF
      has {part(before.af_min)} → <b>{part(after.af_min)}</b> ({rate(Math.min(hasBPS, of(after.af_min)))}) before BE.
    </p>
  );
}

// Marking is what a change does to what its packets say of their class.
function Marking({ before, after }: { before: Policy; after: Policy }) {
  if (before.dscp === after.dscp) return null;
  const trusts = after.dscp === "trust" || after.dscp === "both";
  const marks = after.dscp === "mark" || after.dscp === "both";
  return (
    <p>
      DSCP {before.dscp || "none"} → <b>{after.dscp || "none"}</b>: what the field says when a packet
      comes {trusts ? "decides its class" : "counts for nothing"}, and it {marks ? "is set to the class for the next hop" : "stays as it is"}.
    </p>
  );
}

function Shown({ preview, id }: { preview: Preview; id: string }) {
  if (preview.refused) return <p class="trouble" role="alert"><Name text={preview.refused} /></p>;
  const alike = (a: number, b: number) => Math.abs(a - b) <= 0.001 * Math.max(a, b);
  return (
    <>
      {preview.uplinks.map((u) => {
        const shares = (u.shares ?? []).filter((s) => s.id === id ||
          !alike(s.entitled_before_bps, s.entitled_after_bps) || !alike(s.allocated_before_bps, s.allocated_after_bps));
        return (
          <div key={u.uplink} class="wide">
            {u.refused && <p class="trouble" role="alert"><Name text={u.refused} /></p>}
            <table class="preview" aria-label={"What the change does at " + u.uplink}>
              <thead><tr><th scope="col">at <Name text={u.uplink} /></th><th scope="col" class="number">entitled to</th><th scope="col" class="number">gets now</th></tr></thead>
              <tbody>
                {shares.map((s) => (
                  <tr key={s.id}>
                    <th scope="row"><Name text={s.name} /></th>
                    <td class="number" data-label="entitled to">{rate(s.entitled_before_bps)} → <b>{rate(s.entitled_after_bps)}</b></td>
                    <td class="number" data-label="gets now">{rate(s.allocated_before_bps)} → <b>{rate(s.allocated_after_bps)}</b></td>
                  </tr>
                ))}
              </tbody>
            </table>
            <InClasses before={preview.before} after={preview.after} hasBPS={u.shares?.find((s) => s.id === id)?.allocated_after_bps ?? 0} />
          </div>
        );
      })}
      {preview.before && <Marking before={preview.before} after={preview.after} />}
      {preview.uplinks.length === 0 && <p class="nothing">It has no share of an uplink at the moment, so no rate changes.</p>}
    </>
  );
}
