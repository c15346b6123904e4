import { visible } from "./format";

// Name is text of somebody else's: a name, or a message that has some. Text it
// stays; the page can blur it.
export function Name({ text }: { text: string }) {
  return <bdi class="name">{visible(text)}</bdi>;
}
