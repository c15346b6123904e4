import { useEffect, useReducer } from "preact/hooks";

import { now } from "./theme";

// useTurns looks once every intervalMS, and draws the page again after each look, and
// when what it returns is called.
export function useTurns(look: () => Promise<void>, intervalMS: number): () => void {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    let timer = 0;
    const turn = async () => {
      const began = now();
      await look();
      again(0);
      timer = window.setTimeout(turn, Math.max(100, intervalMS - (now() - began) * 1000));
    };
    void turn();
    return () => clearTimeout(timer);
  }, []);
  return () => again(0);
}
