import { visible } from "./format";

// Name shows text from outside the page, such as a container's name, as text: no markup of it
// is interpreted. The page can blur it.
export function Name({ text }: { text: string }) {
  return <bdi class="name">{visible(text)}</bdi>;
}
