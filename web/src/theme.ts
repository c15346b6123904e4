import { useEffect, useState } from "preact/hooks";

// useTheme is "dark" or "light", as the person who looks wants it.
export function useTheme(): string {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark ? "dark" : "light";
}

// now is in seconds, on a clock that only goes forward.
export function now(): number {
  return performance.now() / 1000;
}
