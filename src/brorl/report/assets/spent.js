/* Where the rollouts went: by the pass rate of their group, over a run and step by step. */

const ROW = 15;

/* Two bars a pass rate: the share of what was generated, and of what the update saw. */
function rateBars(title, note, run, bins) {
  const total = (rows) => bins.map((_, b) => rows.reduce((sum, row) => sum + row[b], 0));
  const share = (counts) => {
    const all = counts.reduce((a, b) => a + b, 0);
    return counts.map((c) => (all ? c / all : null));
  };
  const kinds = [
    { label: "generated", color: "blue", share: share(total(run.spent.generated)), count: total(run.spent.generated) },
    { label: "kept for the update", color: "green", share: share(total(run.spent.kept)), count: total(run.spent.kept) },
  ];
  const height = bins.length * (ROW + 3) + 22;
  const drawing = svg("svg", { role: "img", "aria-label": title, viewBox: `0 0 420 ${height}` });
  const most = Math.max(...kinds.flatMap((k) => k.share).filter(known), 0.01);
  const x = makeScale(0, most, 78, 372);
  bins.forEach((bin, b) => {
    const y = b * (ROW + 3) + 4;
    drawing.append(svg("text", { class: "tick y", x: 72, y: y + 11 }, bin));
    kinds.forEach((kind, k) => {
      const value = kind.share[b];
      if (!known(value)) return;
      const top = y + k * (ROW / 2);
      const bar = svg("rect", { class: "area", x: 78, y: top, width: Math.max(0.5, x(value) - 78), height: ROW / 2 - 0.5 });
      bar.append(svg("title", {}, `${kind.label}: ${kind.count[b].toLocaleString("en")} (${percent(value)})`));
      drawing.append(paint(bar, kind.color, "fill"));
      if (value > 0) drawing.append(svg("text", { class: "barvalue", x: x(value) + 3, y: top + 7 }, percent(value)));
    });
  });
  drawing.append(svg("text", { class: "axis", x: 225, y: height - 4 }, "share of all rollouts of that kind, by pass rate of the group"));
  const legend = kinds.map((kind) => {
    const mark = svg("svg", { class: "swatch", viewBox: "0 0 22 10" }, svg("rect", { x: 3, width: 16, height: 10, class: "area" }));
    paint(mark.firstChild, kind.color, "fill");
    const all = kind.count.reduce((a, b) => a + b, 0);
    return html("li", {}, html("span", { class: "key" }, mark, html("span", {}, kind.label), html("b", {}, formatNumber(all, ""))));
  });
  return frameOf(title, note, drawing, html("ul", { class: "legend" }, legend));
}

/* A column a step, a row a pass rate; the stronger, the larger the share of the step's rollouts. */
function rateHeat(title, note, run, bins, budget, xLabel) {
  const xs = run.spent.x[budget];
  const width = 420;
  const height = bins.length * ROW + 40;
  const drawing = svg("svg", { tabindex: 0, role: "img", "aria-label": title, viewBox: `0 0 ${width} ${height}` });
  const where = html("span", { class: "where", "aria-live": "polite" });
  const edges = columnEdges(xs);
  const x = makeScale(edges[0], edges[edges.length - 1], 78, width - 8);
  const shares = run.spent.generated.map((row) => {
    const all = row.reduce((a, b) => a + b, 0);
    return row.map((c) => (all ? c / all : 0));
  });
  const most = Math.max(...shares.flat(), 1e-9);
  bins.forEach((bin, b) => drawing.append(svg("text", { class: "tick y", x: 72, y: b * ROW + 11 }, bin)));
  const cursor = svg("rect", { class: "cell-cursor", y: 0, height: bins.length * ROW });
  shares.forEach((row, i) =>
    row.forEach((share, b) => {
      if (!share) return;
      const cell = svg("rect", { class: "cell", x: x(edges[i]), width: Math.max(0.6, x(edges[i + 1]) - x(edges[i]) - 0.3), y: b * ROW, height: ROW - 0.5 });
      cell.style.setProperty("opacity", 0.08 + 0.92 * Math.sqrt(share / most));
      drawing.append(cell);
    }),
  );
  const bottom = bins.length * ROW;
  const { ticks, step } = linearTicks(xs[0], xs[xs.length - 1], 5, { whole: budget !== "seconds" });
  for (const tick of ticks)
    drawing.append(svg("text", { class: "tick x", x: x(tick), y: bottom + 14 }, formatNumber(tick, "", tick >= 1e4 ? undefined : step)));
  drawing.append(svg("text", { class: "axis", x: (78 + width) / 2, y: height - 6 }, xLabel), cursor);
  let place = null;
  const read = (i) => {
    place = i;
    cursor.classList.toggle("on", i !== null);
    if (i === null) {
      where.textContent = `Strongest: ${percent(most)} of a step’s rollouts.`;
      return;
    }
    cursor.setAttribute("x", x(edges[i]));
    cursor.setAttribute("width", Math.max(1, x(edges[i + 1]) - x(edges[i])));
    const top = shares[i].map((s, b) => [s, bins[b]]).filter(([s]) => s > 0).sort((a, b) => b[0] - a[0]);
    const named = top.slice(0, 3).map(([s, bin]) => `${bin} ${percent(s)}`);
    where.textContent = `step ${run.spent.steps[i]}: ${named.join(", ")}`;
  };
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    read(nearest(xs, at, x));
  });
  drawing.addEventListener("pointerleave", () => read(null));
  drawing.addEventListener("blur", () => read(null));
  drawing.addEventListener("keydown", (event) => {
    const last = xs.length - 1;
    const next = { ArrowLeft: (place ?? last + 1) - 1, ArrowRight: (place ?? last - 1) + 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    read(Math.max(0, Math.min(last, next)));
  });
  read(null);
  return frameOf(title, note, drawing, html("p", { class: "note" }, where));
}

function frameOf(title, note, drawing, after) {
  return html("figure", { class: "panel" }, html("figcaption", {}, html("h3", {}, title)), note ? html("p", { class: "note" }, note) : null, drawing, after);
}

/* Borders between columns: half way to the neighbours. */
function columnEdges(xs) {
  if (xs.length === 1) return [xs[0] - 0.5, xs[0] + 0.5];
  const middle = xs.slice(1).map((v, i) => (v + xs[i]) / 2);
  return [2 * xs[0] - middle[0], ...middle, 2 * xs[xs.length - 1] - middle[middle.length - 1]];
}

function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0 %";
  return value < 0.1 ? "<0.1 %" : `${value.toFixed(value < 10 ? 1 : 0)} %`;
}
