"use strict";
// Draws `plots` with uPlot, one per panel. Titles and legends are HTML, so that
// they wrap; uPlot has the axes, the bars and the lines.
(function () {
  const labelSize = 12, letterWidth = 7, axisWidth = 58;
  const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const colour = (series, kind) =>
    series.role === "measured" || (kind === "lines" && series.role === "ideal") ? colourOf("c" + (series.colour % 17)) : colourOf(series.role);
  const text = (value) => (value == null ? "-" : String(Number(value.toPrecision(4))));

  const add = (parent, tag, className, content) => {
    const node = parent.appendChild(document.createElement(tag));
    if (className) node.className = className;
    if (content !== undefined) node.textContent = content;
    return node;
  };

  // All panels of a plot have one scale, which begins at 0.
  const range = (plot) => {
    let low = 0, high = 0;
    for (const panel of plot.panels)
      for (const rows of [panel.values, panel.high || [], panel.low || []])
        for (const row of rows) for (const value of row) if (value != null) {
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
    return [low * 1.05, high > 0 ? high * 1.05 : 1];
  };

  const axis = (more) => Object.assign({
    stroke: colourOf("axis"), font: labelSize + "px system-ui, sans-serif", labelFont: labelSize + "px system-ui, sans-serif",
    grid: { stroke: colourOf("grid"), width: 1 }, ticks: { stroke: colourOf("grid"), width: 1 },
  }, more);

  const options = (plot, panel, width, height, xAxis, series, show) => ({
    width, height, series: [{}].concat(series), padding: [12, 12, 0, 0],
    legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { show: plot.kind === "lines" } },
    scales: { x: { time: false, range: xAxis.range }, y: { range: range(plot) } },
    axes: [axis(xAxis.axis), axis({ size: axisWidth, values: (u, ticks) => ticks.map(text), label: plot.y_label, labelSize: 18 })],
    hooks: { setCursor: [(u) => show(u.cursor.idx)] },
  });

  const whiskers = (plot, panel, left, barWidth) => (u) => {
    const c = u.ctx;
    c.save();
    c.strokeStyle = colourOf("whisker");
    c.lineWidth = devicePixelRatio;
    c.beginPath();
    plot.series.forEach((series, s) => panel.categories.forEach((_, i) => {
      const low = panel.low && panel.low[s][i], high = panel.high && panel.high[s][i];
      if (low == null || high == null || low === high) return;
      const x = Math.round(u.valToPos(left(s, i) + barWidth / 2, "x", true)) + 0.5;
      c.moveTo(x, u.valToPos(low, "y", true));
      c.lineTo(x, u.valToPos(high, "y", true));
    }));
    c.stroke();
    c.restore();
  };

  const bars = (plot, panel, room, show) => {
    const count = panel.categories.length, all = plot.series.length, barWidth = 0.84 / all;
    const left = (s, i) => i - 0.42 + s * barWidth;
    const width = Math.min(room, Math.max(180, axisWidth + 30 + count * (all * 10 + 12)));
    const longest = Math.max(...panel.categories.map((name) => name.length));
    const upright = longest * letterWidth <= (width - axisWidth - 30) / count;
    const xAxis = {
      range: [-0.5, count - 0.5],
      axis: {
        splits: panel.categories.map((_, i) => i), values: () => panel.categories, grid: { show: false },
        rotate: upright ? 0 : -45, size: upright ? 28 : 16 + longest * letterWidth * 0.75,
      },
    };
    const series = plot.series.map((one, s) => ({
      fill: colour(one, plot.kind), stroke: colour(one, plot.kind), width: 0, points: { show: false },
      paths: uPlot.paths.bars({
        disp: {
          x0: { unit: 1, values: () => panel.categories.map((_, i) => left(s, i)) },
          size: { unit: 1, values: () => [barWidth * 0.9] },
        },
      }),
    }));
    const o = options(plot, panel, width, 210 + xAxis.axis.size, xAxis, series, show);
    o.hooks.draw = [whiskers(plot, panel, left, barWidth)];
    return [o, [panel.categories.map((_, i) => i)].concat(panel.values)];
  };

  const lines = (plot, panel, room, show) => {
    const width = Math.min(room, plot.panels.length > 1 ? Math.max(360, (room - 16) / 2 - 1) : room);
    const xAxis = { range: [panel.x[0], panel.x[panel.x.length - 1]], axis: { size: 30, label: plot.x_label, labelSize: 18 } };
    const series = plot.series.map((one) => ({
      stroke: colour(one, plot.kind), width: one.role === "measured" ? 1.8 : 1.4, points: { show: one.role === "paper" },
      dash: one.role === "measured" ? [] : [7, 5],
      paths: one.role === "ideal" ? uPlot.paths.stepped({ align: 1 }) : undefined,
    }));
    return [options(plot, panel, width, 270, xAxis, series, show), [panel.x].concat(panel.values)];
  };

  const draw = (figure) => {
    const plot = plots[figure.dataset.plot];
    figure.querySelectorAll(".legend, .panels, .readout").forEach((old) => old.remove());
    const legend = add(figure, "div", "legend");
    for (const series of plot.series) {
      const entry = add(legend, "span");
      const mark = add(entry, "i");
      if (plot.kind === "lines" && series.role !== "measured") {
        mark.className = "dashed";
        mark.style.color = colour(series, plot.kind);
      } else mark.style.background = colour(series, plot.kind);
      entry.append(series.name);
    }
    const panels = add(figure, "div", "panels"), readout = add(figure, "p", "readout");
    for (const panel of plot.panels) {
      const show = (i) => {
        if (i == null) return;
        const at = panel.categories ? panel.categories[i] : plot.x_label + " " + text(panel.x[i]);
        const values = plot.series.map((series, s) => [series.name, panel.values[s][i]]).filter(([, value]) => value != null);
        readout.textContent = [panel.title, at].filter(Boolean).join(", ") + ": " +
          values.map(([name, value]) => name + " " + text(value)).join(", ");
      };
      const box = add(panels, "div", "panel");
      const [o, data] = (plot.kind === "lines" ? lines : bars)(plot, panel, figure.clientWidth, show);
      new uPlot(o, data, box);
      if (panel.title) add(box, "p", "", panel.title).style.maxWidth = o.width + "px";
    }
  };

  const all = () => document.querySelectorAll("figure[data-plot]").forEach(draw);
  let timer, width = document.documentElement.clientWidth;
  addEventListener("resize", () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (width === document.documentElement.clientWidth) return;
      width = document.documentElement.clientWidth;
      all();
    }, 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
})();
