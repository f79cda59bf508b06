/* The page: panels in their sections, one horizontal axis for all, the rollout browser. */

const RUN_COLORS = ["blue", "orange", "green", "purple", "rose", "gold", "teal", "grey"];
const DASHES = [null, "6 4", "2 3", "9 3 2 3"];

const page = JSON.parse(document.getElementById("data").textContent);
const several = page.runs.length > 1;
const sections = new Map();
let budget = remembered();

function remembered() {
  let name = null;
  try {
    name = sessionStorage.getItem("brorl-axis");
  } catch {
    /* a browser that keeps nothing for files: the first axis it is */
  }
  return name in page.budgets ? name : Object.keys(page.budgets)[0];
}

/* The series of a lines or stack panel. One run: a colour a metric. Several: a colour a run. */
function seriesOf(panel, runs) {
  const made = [];
  const ramp = panel.ramp && panel.metrics.length > 2;
  runs.forEach((run) => {
    const source = panel.evals ? run.evals : run;
    panel.metrics.forEach((metric, m) => {
      const y = source.y[metric.name];
      if (!y) return;
      const color = several && panel.form === "lines" ? RUN_COLORS[page.runs.indexOf(run) % RUN_COLORS.length] : metric.color || (ramp ? rampColor(m, panel.metrics.length) : RUN_COLORS[m % RUN_COLORS.length]);
      made.push({
        label: several && panel.form === "lines" ? `${run.name}: ${metric.label}` : metric.label,
        color,
        dash: several || !ramp ? DASHES[m % DASHES.length] : null,
        x: source.x[budget],
        y,
        low: source.y[`${metric.name}_low`],
        high: source.y[`${metric.name}_high`],
        dots: panel.evals,
        shown: ramp ? m === 0 || m === panel.metrics.length - 1 : !several || panel.form === "stack" || m < 2,
      });
    });
  });
  return made;
}

/* From one colour to another for metrics that are ordered, like pass@1, 2, 4 … */
function rampColor(i, count) {
  const part = Math.round((100 * i) / (count - 1));
  return `color-mix(in oklab, var(--orange) ${part}%, var(--blue))`;
}

function chartOf(panel, runs, name) {
  const events = runs.length === 1 ? runs[0].events.map((e) => ({ x: e.x[budget], text: e.text })) : [];
  return new Chart({
    ...panel,
    title: name ? `${panel.title} · ${name}` : panel.title,
    stack: panel.form === "stack",
    series: seriesOf(panel, runs),
    events: events.filter((e) => known(e.x)),
    xLabel: page.budgets[budget],
    xShort: budget === "step" ? "step" : "at",
    xUnit: budget === "seconds" ? "s" : "",
  });
}

function passCurves(panel) {
  const series = page.runs.flatMap((run, r) =>
    run.passk.map((curve, i) => ({
      label: `${several ? `${run.name}: ` : ""}step ${curve.step}`,
      color: RUN_COLORS[several ? r % RUN_COLORS.length : i ? 0 : 7],
      dash: several && i === 0 ? DASHES[1] : null,
      x: curve.ks,
      y: curve.value,
      low: curve.low,
      high: curve.high,
      dots: true,
    })),
  );
  return new Chart({ ...panel, series, xLabel: "k, samples", xShort: "k =", xUnit: "", xLog: true });
}

/* The second metric against the first, a point a step; on the dashed line the two agree. */
function crossed(panel) {
  const [across, up] = panel.metrics;
  const runs = page.runs.filter((run) => run.y[across.name] && run.y[up.name]);
  const series = runs.map((run) => ({
    label: several ? run.name : "steps",
    color: RUN_COLORS[page.runs.indexOf(run) % RUN_COLORS.length],
    x: run.y[across.name],
    y: run.y[up.name],
    scatter: true,
  }));
  series.push({ label: "equal", color: "grey", dash: DASHES[1], x: [0, 1], y: [0, 1] });
  return new Chart({ ...panel, series, xLabel: across.label, xShort: across.label, xUnit: "ratio" });
}

function figures(panel) {
  const each = (draw) => page.runs.map((run) => draw(run, several ? run.name : "")).filter(Boolean);
  const titled = (name) => (name ? `${panel.title} · ${name}` : panel.title);
  if (panel.form === "passk") return [passCurves(panel).root];
  if (panel.form === "cross") return [crossed(panel).root];
  if (panel.form === "stack") return each((run, name) => (panel.metrics.some((m) => run.y[m.name]) ? chartOf(panel, [run], name).root : null));
  if (panel.form === "rates") return each((run, name) => run.spent && rateBars(titled(name), panel.note, run, page.bins));
  if (panel.form === "heat") return each((run, name) => run.spent?.x[budget] && rateHeat(titled(name), panel.note, run, page.bins, budget, page.budgets[budget]));
  return [chartOf(panel, page.runs, "").root];
}

function sectionOf(title) {
  if (!sections.has(title)) {
    const grid = html("div", { class: "grid" });
    const id = `part-${sections.size + 1}`;
    document.getElementById("panels").append(html("section", { id, "aria-label": title }, html("h2", {}, title), grid));
    document.getElementById("links").append(html("a", { href: `#${id}` }, title));
    sections.set(title, grid);
  }
  return sections.get(title);
}

function drawAll() {
  const made = new Map();
  for (const panel of page.panels) {
    const grid = sectionOf(panel.section);
    made.set(grid, [...(made.get(grid) || []), ...figures(panel)]);
  }
  for (const [grid, found] of made) grid.replaceChildren(...found);
  drawOther();
}

/* Any recorded number, chosen by name: what has no panel of its own can be looked at too. */
const chooser = html("select", { "aria-label": "recorded number", onchange: () => drawOther() });

function drawOther() {
  if (!chooser.options.length) {
    const names = [...new Set(page.runs.flatMap((run) => Object.keys(run.y)))].sort();
    const drawn = new Set(page.panels.flatMap((p) => p.metrics.map((m) => m.name)));
    if (!names.length) return;
    for (const name of names) chooser.append(html("option", { value: name }, name));
    chooser.value = names.find((name) => !drawn.has(name)) ?? names[0];
  }
  const name = chooser.value;
  const panel = { section: "", title: name, form: "lines", metrics: [{ name, label: "recorded", color: "" }], unit: "", zero: false, log: false, note: "" };
  sectionOf("Any recorded number").replaceChildren(html("div", { class: "chooser" }, chooser), chartOf(panel, page.runs, "").root);
}

function axisChoice() {
  const select = html("select", { id: "axis" });
  for (const [name, label] of Object.entries(page.budgets)) select.append(html("option", { value: name }, label));
  select.value = budget;
  select.addEventListener("change", () => {
    budget = select.value;
    try {
      sessionStorage.setItem("brorl-axis", budget);
    } catch {
      /* kept for this view only */
    }
    drawAll();
  });
  document.getElementById("axis-choice").append(select);
}

const folded = () => [...document.querySelectorAll("#settings details:not([open])")];
let opened = [];
addEventListener("beforeprint", () => {
  opened = folded();
  opened.forEach((d) => (d.open = true));
});
addEventListener("afterprint", () => opened.forEach((d) => (d.open = false)));

if (Object.keys(page.budgets).length && page.panels.length) {
  axisChoice();
  drawAll();
}
const rollouts = document.getElementById("rollouts");
if (page.runs.some((run) => run.groups.length)) new Browser(rollouts, page.runs);
else rollouts.append(html("p", { class: "note" }, "No rollouts are recorded."));
document.getElementById("links").append(...[["#rollouts-part", "Rollouts"], ["#settings", "Settings"]].map(([href, text]) => html("a", { href }, text)));
