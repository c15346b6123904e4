// A plot over the last three minutes: uPlot draws it, its legend is HTML with the
// values under the pointer, which is at the same moment in all plots.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type UPlot from "uplot";
import { keptSeconds, type Values } from "./samples";

declare const uPlot: typeof UPlot; // of uplot.js

export interface Line {
  // key tells this line from the others of its plot.
  key: string;
  label: ComponentChildren;
  values: Values;
  // colour is the name of a colour in app.css.
  colour: string;
  dashed?: boolean;
  // area: values is the upper edge of an area that begins at 0 and hides those of
  // the lines before it.
  area?: boolean;
  // shown has the values for the legend where they are others.
  shown?: Values;
  // without says what it means that there is no value at an index.
  without?: (index: number) => string;
}

interface Props {
  title: string;
  times: number[];
  lines: Line[];
  format: (value: number) => string;
  // atLeast is how high the scale goes at least.
  atLeast: number;
  height: number;
  theme: string;
  // empty says why there is nothing to see, if there is not.
  empty?: string;
}

const colourOf = (name: string) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

// leastSeconds is how long the plots go back when the page has just been opened.
const leastSeconds = 60;

function spanOf(first: number, last: number): number {
  return Math.min(keptSeconds, Math.max(leastSeconds, last - first));
}

// steps are between values of the y axis: whole ones, so that none is rounded to another.
const steps = Array.from({ length: 40 }, (_, i) => [1, 2, 5][i % 3]! * 10 ** Math.floor(i / 3));

function options(props: Props, width: number, moved: (index: number | null) => void): UPlot.Options {
  const font = "12px system-ui, sans-serif";
  const axis = { stroke: colourOf("quiet"), font, grid: { stroke: colourOf("grid"), width: 1 }, ticks: { stroke: colourOf("grid"), width: 1 } };
  return {
    width, height: props.height, padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, sync: { key: "weir", scales: ["x", null] } },
    scales: {
      x: { time: false, range: (_u, min, max) => [max - spanOf(min, max), max] },
      y: { range: (_u, _min, max) => [0, Math.max(props.atLeast, (max || 0) * 1.05)] },
    },
    axes: [
      {
        ...axis, size: 28,
        splits: (u) => {
          const { min = 0, max = 0 } = u.scales.x ?? {};
          const step = max - min > 90 ? 30 : 15;
          return Array.from({ length: Math.floor((max - min) / step) + 1 }, (_, i) => max - i * step).reverse();
        },
        values: (u, ticks) => ticks.map((at) => {
          const ago = Math.round((u.scales.x?.max ?? 0) - at);
          return ago === 0 ? "now" : "−" + ago + " s";
        }),
      },
      { ...axis, size: 66, incrs: steps, values: (_u, ticks) => ticks.map(props.format) },
    ],
    series: [{}, ...props.lines.map((line): UPlot.Series => ({
      stroke: colourOf(line.colour), width: line.area ? 0 : 1.6, points: { show: false }, spanGaps: false,
      ...(line.area ? { fill: colourOf(line.colour) } : {}), ...(line.dashed ? { dash: [6, 4] } : {}),
    }))],
    hooks: { setCursor: [(u) => moved(u.cursor.left !== undefined && u.cursor.left >= 0 ? u.cursor.idx ?? null : null)] },
  };
}

export function Plot(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>();
  const [pointed, setPointed] = useState<number | null>(null);
  const shape = [props.theme, props.height, props.atLeast, ...props.lines.map((line) => line.key + line.colour)].join("\t");
  const data = [props.times, ...props.lines.map((line) => line.values)] as UPlot.AlignedData;

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const drawn = new uPlot(options(props, parent.clientWidth, setPointed), data, parent);
    plot.current = drawn;
    const watch = new ResizeObserver(() => drawn.setSize({ width: parent.clientWidth, height: props.height }));
    watch.observe(parent);
    return () => {
      watch.disconnect();
      drawn.destroy();
      plot.current = undefined;
    };
  }, [shape]);
  useEffect(() => plot.current?.setData(data), [props.times.at(-1), props.times.length, shape]);

  // The arrow keys move the pointer as a mouse does.
  const move = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !plot.current) return;
    event.preventDefault();
    const last = props.times.length - 1;
    const to = Math.min(last, Math.max(0, (pointed ?? last) + step));
    // The third argument, which its types lack, tells the plots that share the pointer.
    const setCursor = plot.current.setCursor as (at: { left: number; top: number }, fire: boolean, tell: boolean) => void;
    setCursor({ left: plot.current.valToPos(props.times[to] ?? 0, "x"), top: 0 }, true, true);
  };
  const at = pointed ?? props.times.length - 1;
  const valueOf = (line: Line) => (line.shown ?? line.values)[at];
  const ago = Math.round((props.times.at(-1) ?? 0) - (props.times[at] ?? 0));
  return (
    <figure>
      <figcaption>{props.title} <span class="quiet">{ago > 0 ? ago + " s ago" : ""}</span></figcaption>
      <div class="canvas" ref={box} tabIndex={0} role="img" onKeyDown={move}
        aria-label={props.title + " over the last three minutes. The arrow keys move through its samples, whose values are below."}>
        {props.empty && <p class="over">{props.empty}</p>}
      </div>
      <ul class="legend">
        {props.lines.map((line) => (
          <li key={line.key}>
            <i class={(line.dashed ? "dashed " : "") + "of-" + line.colour} />
            {line.label} <b>{valueOf(line) == null ? (line.without?.(at) ?? "–") : props.format(valueOf(line) as number)}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}
