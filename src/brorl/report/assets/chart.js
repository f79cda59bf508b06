/* One figure: title, tools, drawing, and a legend that doubles as readout. The mouse or the arrow
   keys move a line along the horizontal axis; the legend then tells the values under it. */

const HEIGHT = 220;
const MARGIN = { top: 16, right: 12, bottom: 34 };
const MANY = 100; // points: beyond, a line of means is drawn over the faint line of the points

/* spec: title, note, unit, zero, log, stack, xLabel, xUnit, xLog, series, events
   series: { label, color, dash, x, y, low, high, dots, scatter, shown } */
class Chart {
  constructor(spec) {
    this.spec = spec;
    this.log = spec.log && this.mayLog();
    this.place = null;
    this.reach = this.isLong() ? Math.ceil(Math.max(...spec.series.map((s) => s.y.length)) / 50) : 0;
    this.smooth = this.reach > 0;
    this.drawing = svg("svg", {
      tabindex: 0,
      role: "img",
      "aria-label": `${spec.title}. Arrow keys read values.`,
      onpointermove: (event) => this.pointAt(event),
      onpointerleave: () => this.read(null),
      onblur: () => this.read(null),
      onkeydown: (event) => this.key(event),
    });
    this.where = html("span", { class: "where", "aria-live": "polite" });
    this.legend = html("ul", { class: "legend" });
    this.root = html(
      "figure",
      { class: "panel" },
      html("figcaption", {}, html("h3", {}, spec.title), this.tools()),
      spec.note ? html("p", { class: "note" }, spec.note) : null,
      this.drawing,
      this.legend,
    );
    this.entries = spec.series.map((series, i) => this.entry(series, i));
    this.width = 0;
    new ResizeObserver(() => requestAnimationFrame(() => this.root.clientWidth !== this.width && this.draw())).observe(this.root);
  }

  mayLog() {
    const values = this.spec.series.flatMap((s) => s.y).filter(known);
    return !this.spec.stack && values.some((v) => v > 0) && values.every((v) => v >= 0);
  }

  isLong() {
    return !this.spec.stack && this.spec.series.some((s) => !s.low && !s.scatter && s.y.length > MANY);
  }

  tools() {
    const toggle = (label, title, state, act) => {
      const button = html("button", { type: "button", title, "aria-pressed": state }, label);
      button.addEventListener("click", () => button.setAttribute("aria-pressed", act()));
      return button;
    };
    const log = this.mayLog()
      ? toggle("log", "logarithmic vertical axis", this.log, () => {
          this.log = !this.log;
          this.draw();
          return this.log;
        })
      : null;
    const smooth = this.reach
      ? toggle("smooth", `means over up to ${2 * this.reach + 1} points`, true, () => {
          this.smooth = !this.smooth;
          this.draw();
          return this.smooth;
        })
      : null;
    const wide = toggle("wide", "across the whole page", false, () => this.root.classList.toggle("wide"));
    return html("span", { class: "tools" }, this.where, smooth, log, wide);
  }

  entry(series, i) {
    const value = html("b", {});
    const mark = svg("svg", { class: "swatch", viewBox: "0 0 22 10", "aria-hidden": "true" });
    mark.append(
      this.spec.stack
        ? svg("rect", { x: 3, y: 0, width: 16, height: 10, class: "area" })
        : svg("line", { x1: 0, x2: 22, y1: 5, y2: 5, class: "line", "stroke-dasharray": series.dash }),
    );
    paint(mark.firstChild, series.color, this.spec.stack ? "fill" : "stroke");
    const button = html(
      "button",
      { type: "button", "aria-pressed": series.shown !== false, title: "show or hide" },
      mark,
      html("span", {}, series.label),
      value,
    );
    button.addEventListener("click", () => {
      series.shown = series.shown === false;
      button.setAttribute("aria-pressed", series.shown);
      this.draw();
    });
    this.legend.append(html("li", {}, button));
    return { value, button };
  }

  get shown() {
    return this.spec.series.filter((s) => s.shown !== false);
  }

  draw() {
    this.width = this.root.clientWidth;
    const width = Math.max(260, Math.round(this.width) - 26);
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.replaceChildren();
    const { spec } = this;
    const layers = spec.stack ? stackLayers(this.shown) : null;
    const values = layers
      ? layers.flatMap((l) => l.high)
      : this.shown.flatMap((s) => [...s.y, ...(s.low || []), ...(s.high || [])]);
    const range = axisRange(values, { zero: spec.zero || spec.stack, log: this.log, unit: spec.unit });
    const xs = this.shown.flatMap((s) => s.x).filter(known);
    this.xs = [...new Set(xs)].sort((a, b) => a - b);
    if (!range || !this.xs.length) {
      this.drawing.append(svg("text", { x: width / 2, y: HEIGHT / 2, class: "empty" }, "nothing shown"));
      this.readAt(null);
      return;
    }
    if (layers && spec.unit === "share") range[1] = Math.min(1, range[1]);
    const yTicks = this.log ? { ticks: logTicks(...range) } : linearTicks(...range, 5, spec);
    const labels = yTicks.ticks.map((v) => formatNumber(v, spec.unit === "bytes" ? "bytes" : "", yTicks.step));
    const left = 14 + 6.6 * Math.max(...labels.map((l) => l.length));
    const xRange = [this.xs[0], this.xs[this.xs.length - 1]];
    if (xRange[0] === xRange[1]) {
      xRange[0] -= spec.xLog ? xRange[0] / 2 : 1;
      xRange[1] += 1;
    }
    this.x = makeScale(...xRange, left, width - MARGIN.right, spec.xLog);
    this.y = makeScale(...range, HEIGHT - MARGIN.bottom, MARGIN.top, this.log);
    this.frame(width, left, yTicks.ticks, labels, xRange);
    this.eventLines();
    if (layers) layers.forEach((layer) => this.layer(layer));
    else this.shown.forEach((series) => this.line(series));
    this.cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    this.drawing.append(this.cursor);
    this.readAt(this.place);
  }

  frame(width, left, ticks, labels, xRange) {
    const { spec } = this;
    const bottom = HEIGHT - MARGIN.bottom;
    ticks.forEach((tick, i) => {
      const y = this.y(tick);
      this.drawing.append(
        svg("line", { class: "grid", x1: left, x2: width - MARGIN.right, y1: y, y2: y }),
        svg("text", { class: "tick y", x: left - 6, y: y + 3.5 }, labels[i]),
      );
    });
    const room = Math.max(2, Math.floor((width - left) / 75));
    const xTicks = spec.xLog ? { ticks: this.xs } : linearTicks(...xRange, room, { whole: !["s", "ratio"].includes(spec.xUnit) });
    for (const tick of xTicks.ticks) {
      const text = formatNumber(tick, "", tick >= 1e4 ? undefined : xTicks.step);
      this.drawing.append(
        svg("line", { class: "notch", x1: this.x(tick), x2: this.x(tick), y1: bottom, y2: bottom + 4 }),
        svg("text", { class: "tick x", x: this.x(tick), y: bottom + 15 }, text),
      );
    }
    this.drawing.append(
      svg("line", { class: "base", x1: left, x2: width - MARGIN.right, y1: bottom, y2: bottom }),
      svg("text", { class: "axis", x: (left + width - MARGIN.right) / 2, y: HEIGHT - 4 }, spec.xLabel),
    );
    if (spec.unit && !["share", "bytes", "ratio"].includes(spec.unit))
      this.drawing.append(svg("text", { class: "unit", x: 2, y: 9 }, spec.unit));
  }

  eventLines() {
    for (const event of this.spec.events || []) {
      const x = this.x(event.x);
      this.drawing.append(
        svg("line", { class: "event", x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }, svg("title", {}, event.text)),
      );
    }
  }

  line(series) {
    const usable = (v) => known(v) && (!this.log || v > 0);
    const points = series.x.map((x, i) => ({ x, y: series.y[i], low: series.low?.[i], high: series.high?.[i] }));
    const clamp = (v) => (this.log && v <= 0 ? HEIGHT - MARGIN.bottom : this.y(v));
    if (series.low)
      for (const part of segments(points, (p) => known(p.x) && known(p.low) && known(p.high))) {
        const up = part.map((p) => [this.x(p.x), clamp(p.high)]);
        const down = part.map((p) => [this.x(p.x), clamp(p.low)]).reverse();
        this.drawing.append(paint(svg("path", { class: "band", d: `${pathOf([...up, ...down])}Z` }), series.color, "fill"));
        if (part.length === 1)
          this.drawing.append(paint(svg("line", { class: "whisker", x1: up[0][0], x2: up[0][0], y1: up[0][1], y2: down[0][1] }), series.color, "stroke"));
      }
    if (series.scatter) return this.dots(points.filter((p) => known(p.x) && usable(p.y)), series.color);
    for (const part of segments(points, (p) => known(p.x) && usable(p.y))) {
      const placed = part.map((p) => [this.x(p.x), this.y(p.y)]);
      const stroke = (points, dash, kind) => paint(svg("path", { class: `line ${kind}`, d: pathOf(points), "stroke-dasharray": dash }), series.color, "stroke");
      if (placed.length > 1 && this.smooth && !series.low) {
        const means = smoothed(part, this.reach).map((p) => [this.x(p.x), this.y(p.y)]);
        this.drawing.append(stroke(placed, null, "faint"), stroke(means, series.dash, ""));
      } else if (placed.length > 1) this.drawing.append(stroke(placed, series.dash, ""));
      if (series.dots || placed.length === 1)
        for (const [x, y] of placed)
          this.drawing.append(paint(svg("circle", { cx: x, cy: y, r: 3 }), series.color, "fill"));
    }
  }

  /* Points without a line between them; the later, the stronger. */
  dots(points, color) {
    points.forEach((point, i) => {
      const dot = paint(svg("circle", { cx: this.x(point.x), cy: this.y(point.y), r: 3 }), color, "fill");
      dot.style.setProperty("opacity", 0.2 + (0.8 * (i + 1)) / points.length);
      this.drawing.append(dot);
    });
  }

  layer({ series, low, high }) {
    const points = series.x.map((x, i) => ({ x, low: low[i], high: high[i] }));
    for (const part of segments(points, (p) => known(p.x) && known(p.high))) {
      let up = part.map((p) => [this.x(p.x), this.y(p.high)]);
      let down = part.map((p) => [this.x(p.x), this.y(p.low)]);
      if (part.length === 1) {
        up = [[up[0][0] - 5, up[0][1]], [up[0][0] + 5, up[0][1]]];
        down = [[up[0][0], down[0][1]], [up[1][0], down[0][1]]];
      }
      const d = `${pathOf([...up, ...down.reverse()])}Z`;
      this.drawing.append(paint(svg("path", { class: "area", d }), series.color, "fill"));
    }
  }

  pointAt(event) {
    if (!this.xs?.length) return;
    const box = this.drawing.getBoundingClientRect();
    const width = this.drawing.viewBox.baseVal.width;
    const at = ((event.clientX - box.left) / box.width) * width;
    this.read(nearest(this.xs, at, this.x));
  }

  key(event) {
    if (!this.xs?.length) return;
    const last = this.xs.length - 1;
    const now = this.place ?? last;
    const next = { ArrowLeft: now - 1, ArrowRight: this.place === null ? last : now + 1, Home: 0, End: last }[event.key];
    if (event.key === "Escape") this.read(null);
    if (next === undefined) return;
    event.preventDefault();
    this.read(Math.max(0, Math.min(last, next)));
  }

  read(place) {
    this.place = place;
    this.readAt(place);
  }

  /* Values at a place of the horizontal axis; the last known ones where there is none. */
  readAt(place) {
    const { spec } = this;
    const at = place === null || !this.xs?.length ? null : this.xs[Math.min(place, this.xs.length - 1)];
    const told = at ?? (spec.xLog ? this.xs?.at(-1) : null);
    this.where.textContent = known(told) ? `${spec.xShort} ${formatNumber(told, spec.xUnit)}` : "";
    if (this.cursor) {
      this.cursor.classList.toggle("on", at !== null);
      if (at !== null) ["x1", "x2"].forEach((name) => this.cursor.setAttribute(name, this.x(at)));
    }
    spec.series.forEach((series, i) => {
      const index = at === null ? lastKnown(series.y) : nearest(series.x, at, (v) => v);
      this.entries[i].value.textContent = index < 0 ? "–" : this.valueText(series, index);
    });
  }

  valueText(series, i) {
    const text = formatNumber(series.y[i], this.spec.unit);
    if (!series.low || !known(series.low[i])) return text;
    return `${text} [${formatNumber(series.low[i], "")}, ${formatNumber(series.high[i], "")}]`;
  }
}

/* The palette's colours are names of page.css, so that light, dark and print each have their own. */
function paint(node, color, property) {
  node.style.setProperty(property, color.startsWith("color-mix") ? color : `var(--${color})`);
  return node;
}

/* Index of the value whose image is nearest to `at`. */
function nearest(values, at, image) {
  let best = -1;
  let distance = Infinity;
  values.forEach((value, i) => {
    if (!known(value)) return;
    const d = Math.abs(image(value) - at);
    if (d < distance) [best, distance] = [i, d];
  });
  return best;
}

function lastKnown(values) {
  for (let i = values.length - 1; i >= 0; i -= 1) if (known(values[i])) return i;
  return -1;
}

/* Bands that add up, the first at the bottom. A point with an unknown part is a gap in all. */
function stackLayers(series) {
  if (!series.length) return [];
  const length = series[0].x.length;
  const whole = [...Array(length).keys()].map((i) => series.every((s) => known(s.y[i])));
  let below = whole.map((ok) => (ok ? 0 : null));
  return series.map((s) => {
    const low = below;
    const high = low.map((v, i) => (v === null ? null : v + s.y[i]));
    below = high;
    return { series: s, low, high };
  });
}
