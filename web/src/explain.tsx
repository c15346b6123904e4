// Why a container is entitled to so much, why it gets so much now, and what it would
// need to get more: the agent's words.

import { type Container, explanation } from "./api";
import { useAsked } from "./asked";
import { rate } from "./format";
import { Name } from "./name";
import { deviceOf, isReceived } from "./received";

function Words({ title, lines }: { title: string; lines: string[] | null }) {
  if (!lines || lines.length === 0) return null;
  return (
    <div>
      <h5>{title}</h5>
      <ul>{lines.map((line) => <li key={line}><Name text={line} /></li>)}</ul>
    </div>
  );
}

export function Explain({ c, uplink }: { c: Container; uplink: string }) {
  const { answer, trouble } = useAsked(() => explanation(c.id), c.id);
  const [shares, policy] = isReceived(uplink) ? [answer?.in_shares, answer?.in_policy] : [answer?.shares, answer?.policy];
  const share = shares?.find((s) => s.uplink === deviceOf(uplink));
  const notes = (policy ?? []).flatMap((v) => (v.notes ?? []).map((note) => v.name + ": " + note));
  return (
    <section class="explain" aria-label="Why">
      <h4>Why</h4>
      {trouble !== "" && <p class="trouble" role="alert"><Name text={trouble} /></p>}
      {!answer && trouble === "" && <p class="nothing" role="status">Waiting for the agent's reasons.</p>}
      {answer && !share && <p class="nothing">It has no share of this uplink: none of its traffic leaves there.</p>}
      {share && (
        <div class="plots">
          <Words title={"Entitled to " + rate(share.entitled_bps)} lines={share.entitled} />
          <Words title={"Gets " + rate(share.allocated_bps) + " now"} lines={share.allocated} />
          <Words title="For more" lines={share.for_more} />
          <Words title="Its policy" lines={notes} />
        </div>
      )}
    </section>
  );
}
