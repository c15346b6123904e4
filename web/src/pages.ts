// The pages of Weir's daemons on this host, and which of them this is.

import { ask } from "./api";
import { useAsked } from "./asked";

export type Kind = "agent" | "edge" | "sdn";

// Page is a page that is open, by the name of what it shows.
export interface Page {
  kind: Kind;
  url: string;
}

const intervalMS = 10_000;

// node is the node of weir-edge that the page is of, "" if it is of this host.
export const node = decodeURIComponent(/^\/nodes\/([^/]+)\/$/.exec(location.pathname)?.[1] ?? "");

const pages = async (): Promise<Page[]> => JSON.parse((await ask("v1/pages")).text) as Page[];

// usePages are the pages that are open now; none where the daemon does not say.
export function usePages(): Page[] {
  return useAsked(pages, "", intervalMS).answer ?? [];
}
