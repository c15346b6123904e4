// What the page asks for only while a view shows it.

import { useEffect, useState } from "preact/hooks";

const usualMS = 2000;

// Asked is the last answer, and what was wrong with asking last.
export interface Asked<T> {
  answer?: T;
  trouble: string;
}

// useAsked asks again and again, until what it is for changes or is not shown any more.
export function useAsked<T>(ask: () => Promise<T>, about: string, intervalMS = usualMS): Asked<T> {
  const [asked, set] = useState<Asked<T>>({ trouble: "" });
  useEffect(() => {
    let timer = 0;
    let over = false;
    const turn = async () => {
      let said: (last: Asked<T>) => Asked<T>;
      try {
        const answer = await ask();
        said = () => ({ answer, trouble: "" });
      } catch (error) {
        const trouble = error instanceof Error ? error.message : String(error);
        said = (last) => ({ ...last, trouble });
      }
      if (over) return;
      set(said);
      timer = window.setTimeout(turn, intervalMS);
    };
    set({ trouble: "" });
    void turn();
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [about]);
  return asked;
}
