import { useEffect, useReducer } from "preact/hooks";

// useTurns looks at each multiple of intervalMS of the clock, and draws the page again after
// each look, and when what it returns is called. All pages of a machine look at the same
// moment: a daemon wakes up once for all of them, and encodes one answer.
export function useTurns(look: () => Promise<void>, intervalMS: number): () => void {
  const [, again] = useReducer((count: number) => count + 1, 0);
  useEffect(() => {
    let timer = 0;
    const turn = async () => {
      await look();
      again(0);
      timer = window.setTimeout(turn, Math.max(100, intervalMS - (Date.now() % intervalMS)));
    };
    void turn();
    return () => clearTimeout(timer);
  }, []);
  return () => again(0);
}
