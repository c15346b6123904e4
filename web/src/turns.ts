import { useEffect, useReducer } from "preact/hooks";

// useTurns looks at each multiple of intervalMS of the clock, and draws the page again after
// each look, and when draw is called, which look gets and useTurns returns. All pages of a machine look at the same
// moment: a daemon wakes up once for all of them, and encodes one answer.
export function useTurns(look: (draw: () => void) => Promise<void>, intervalMS: number): () => void {
  const [, forceDraw] = useReducer((draws: number) => draws + 1, 0);
  const draw = () => forceDraw(0);
  useEffect(() => {
    let timer = 0;
    const turn = async () => {
      await look(draw);
      draw();
      timer = window.setTimeout(turn, Math.max(100, intervalMS - (Date.now() % intervalMS)));
    };
    void turn();
    return () => clearTimeout(timer);
  }, []);
  return draw;
}
