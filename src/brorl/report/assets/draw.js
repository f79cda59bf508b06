/* Drawing: HTML and SVG elements, number formats, ticks, scales. Text only ever enters the page
   as a text node, so nothing that a model wrote can become markup. */

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) node.setAttribute(name, String(value));
    else if (value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const html = (tag, attributes, ...children) =>
  build(document.createElement(tag), attributes, children);

const svg = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/* Numbers as people write them. `step` is the distance of ticks: it decides the digits. */
function formatNumber(value, unit, step) {
  if (!known(value)) return "–";
  return plainNumber(value, unit, step).replaceAll("-", "−");
}

function plainNumber(value, unit, step) {
  if (unit === "bytes") return scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB"]);
  if (step > 0 && Math.abs(value) < 1e4 && (step >= 1e-4 || Math.abs(value) > 1e4 * step)) {
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return value.toFixed(Math.min(digits, 12));
  }
  if (unit === "ratio" && value !== 1 && Math.abs(value - 1) < 5e-4) {
    return `1 ${value > 1 ? "+" : "-"} ${Math.abs(value - 1).toExponential(1)}`;
  }
  return unit === "s" ? `${short(value)} s` : short(value);
}

function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e4) return scaled(value, 1000, ["", "k", "M", "G", "T"]);
  if (size < 1e-3) return value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1000 ? 4 : 3)));
}

function scaled(value, base, units) {
  let level = 0;
  while (Math.abs(value) >= base && level < units.length - 1) {
    value /= base;
    level += 1;
  }
  return `${Number(value.toPrecision(3))}${units[level]}`;
}

/* Ticks at 1, 2 or 5 times a power of ten, of a power of 1024 for bytes. */
function linearTicks(low, high, count, { whole, unit } = {}) {
  const base = unit === "bytes" ? 1024 ** Math.max(0, Math.floor(Math.log(high || 1) / Math.log(1024))) : 1;
  const span = (high - low || 1) / base;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough - 1e-12 * power);
  if (whole) step = Math.max(1, step);
  step *= base;
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * span * base; i += 1) ticks.push(i * step);
  return { ticks, step };
}

/* Powers of ten, and 2 and 5 times them where there are few. */
function logTicks(low, high) {
  const first = Math.floor(Math.log10(low));
  const last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 6));
  const ticks = [];
  for (let p = first; p <= last; p += every)
    for (const f of last - first <= 3 ? [1, 2, 5] : [1]) ticks.push(f * 10 ** p);
  const inside = ticks.filter((t) => t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9));
  return inside.length > 1 ? inside : [low, high];
}

function makeScale(low, high, from, to, log) {
  const f = log ? Math.log : (v) => v;
  const a = f(low);
  const width = f(high) - a || 1;
  return (value) => from + ((f(value) - a) / width) * (to - from);
}

/* Range of an axis that holds all values. Shares end at 1 at most. */
function axisRange(values, { zero, log, unit }) {
  const usable = values.filter((v) => known(v) && (!log || v > 0));
  if (!usable.length) return null;
  let low = usable.reduce((a, b) => Math.min(a, b));
  let high = usable.reduce((a, b) => Math.max(a, b));
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  if (zero) {
    low = Math.min(0, low);
    high = Math.max(0, high);
  }
  if (low === 0 && high === 0) high = 1;
  else if (low === high) {
    const room = Math.abs(high) * 0.1;
    low -= room;
    high += room;
  } else {
    const room = 0.06 * (high - low);
    if (!(zero && low === 0)) low -= room;
    if (!(zero && high === 0)) high += room;
  }
  if (unit === "share" && high > 1 && usable.every((v) => v <= 1)) high = 1;
  return [low, high];
}

/* Runs of neighbouring points that are all known: a gap in the data is a gap in the curve. */
function segments(points, usable) {
  const found = [];
  let open = null;
  points.forEach((point, i) => {
    if (!usable(point, i)) open = null;
    else if (open) open.push(point);
    else found.push((open = [point]));
  });
  return found;
}

/* Means over neighbours, `reach` to each side and fewer at the ends; never across a gap. */
function smoothed(points, reach) {
  const sums = [0];
  for (const point of points) sums.push(sums[sums.length - 1] + point.y);
  return points.map((point, i) => {
    const r = Math.min(reach, i, points.length - 1 - i);
    return { ...point, y: (sums[i + r + 1] - sums[i - r]) / (2 * r + 1) };
  });
}

const pathOf = (points) => points.map((p, i) => `${i ? "L" : "M"}${p[0].toFixed(1)},${p[1].toFixed(1)}`).join("");
