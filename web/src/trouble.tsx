// What a page says where a daemon does not answer, or has not yet.

import { seconds } from "./format";
import { Name } from "./name";
import { now } from "./theme";

interface Props {
  // who does not answer.
  who: string;
  // goesOn is what that does to others.
  goesOn: string;
  // trouble is why, "" if it does answer.
  trouble: string;
  seen: boolean;
  answeredAt: number;
}

export function Trouble({ who, goesOn, trouble, seen, answeredAt }: Props) {
  if (trouble !== "")
    return (
      <p class="trouble" role="alert">
        {seen ? `No answer from ${who} for ${seconds(now() - answeredAt)}: ` : `No answer from ${who} yet: `}
        <Name text={trouble} />. {goesOn} goes on; the page does by itself, too.{seen && " What is below is what it said last."}
      </p>
    );
  return seen ? null : <p class="nothing" role="status">Waiting for {who}'s first answer.</p>;
}
