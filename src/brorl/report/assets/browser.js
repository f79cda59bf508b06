/* The rollout browser: a list of groups, the most surprising first, and one group in full. */

class Browser {
  constructor(host, runs) {
    this.entries = runs.flatMap((run) => run.groups.map((group) => ({ group, run: run.name })));
    this.several = runs.length > 1;
    this.search = html("input", { type: "search", placeholder: "problem, prompt or answer  ( / )", "aria-label": "search groups", oninput: () => this.fill() });
    this.kind = this.choice("kind of group", "every kind", (e) => e.group.kind);
    this.step = this.choice("step", "every step", (e) => String(e.group.step));
    this.run = this.several ? this.choice("run", "every run", (e) => e.run) : null;
    this.list = html("div", { class: "groups", role: "listbox", "aria-label": "groups", tabindex: 0, onkeydown: (event) => this.key(event) });
    this.jumps = html("div", { class: "jumps", role: "group", "aria-label": "jump to the most surprising group of a kind" });
    this.detail = html("article", { class: "group", "aria-live": "polite" });
    this.count = html("span", { class: "where", "aria-live": "polite" });
    host.append(
      html("div", { class: "filters" }, this.search, this.kind, this.step, this.run, this.count),
      this.jumps,
      html("div", { class: "browser" }, this.list, this.detail),
    );
    this.fill();
    addEventListener("keydown", (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      this.search.focus();
    });
  }

  choice(label, all, valueOf) {
    const values = [...new Set(this.entries.map(valueOf))];
    const select = html("select", { "aria-label": label, onchange: () => this.fill() }, html("option", { value: "" }, all));
    for (const value of values) {
      const many = this.entries.filter((e) => valueOf(e) === value).length;
      select.append(html("option", { value }, `${value} (${many})`));
    }
    select.fits = (entry) => !select.value || select.value === valueOf(entry);
    return select;
  }

  fill() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const choices = [this.kind, this.step, this.run].filter(Boolean);
    this.found = this.entries.filter((e) => choices.every((c) => c.fits(e)) && words.every((w) => searchable(e).includes(w)));
    this.list.replaceChildren(...this.found.map((entry, i) => this.item(entry, i)));
    this.jumps.replaceChildren("jump to: ", ...this.kinds().map(([kind, count]) => this.jump(kind, count)));
    this.count.textContent = `${this.found.length} of ${this.entries.length} groups`;
    this.choose(0);
  }

  /* Kinds among the groups found, in their order, with how many there are of each. */
  kinds() {
    const found = new Map();
    for (const { group } of this.found) found.set(group.kind, (found.get(group.kind) || 0) + 1);
    return [...found];
  }

  /* To the first group of a kind; pressed again, to the next one. */
  jump(kind, count) {
    const go = () => {
      const places = this.found.map((e, i) => [e.group.kind, i]).filter(([k]) => k === kind).map(([, i]) => i);
      this.choose(places.find((i) => i > this.chosen) ?? places[0]);
      this.list.children[this.chosen]?.scrollIntoView({ block: "nearest" });
    };
    return html("button", { type: "button", onclick: go }, `${kind} ${count}`);
  }

  item({ group, run }, i) {
    const bar = html("span", { class: "meter", title: `${group.right} of ${group.graded} right` }, html("i", {}));
    bar.firstChild.style.setProperty("width", `${group.graded ? (100 * group.right) / group.graded : 0}%`);
    return html(
      "div",
      { class: "item", role: "option", id: `group-${i}`, "aria-selected": false, onclick: () => this.choose(i) },
      html("span", { class: "kind" }, group.kind),
      html("bdi", { class: "name" }, group.problem),
      bar,
      html("span", { class: "sub" }, `${group.right} of ${group.graded} right · ${group.distinct} distinct · step ${group.step}${this.several ? ` · ${run}` : ""}`),
    );
  }

  key(event) {
    const move = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
    const jump = { Home: 0, End: this.found.length - 1 }[event.key];
    if (move === undefined && jump === undefined) return;
    event.preventDefault();
    this.choose(jump ?? this.chosen + move);
    this.list.children[this.chosen]?.scrollIntoView({ block: "nearest" });
  }

  choose(i) {
    this.chosen = Math.max(0, Math.min(this.found.length - 1, i));
    [...this.list.children].forEach((item, at) => item.setAttribute("aria-selected", at === this.chosen));
    if (this.found.length) this.list.setAttribute("aria-activedescendant", `group-${this.chosen}`);
    else this.list.removeAttribute("aria-activedescendant");
    this.detail.replaceChildren(...(this.found.length ? this.groupOf(this.found[this.chosen]) : [html("p", {}, "No group fits.")]));
  }

  groupOf({ group, run }) {
    const facts = [
      ["outcome", `${group.right} of ${group.graded} right (${percent(group.graded ? group.right / group.graded : 0)})`],
      ["answers", `${group.n}, ${group.distinct} distinct${group.truncated ? `, ${group.truncated} cut off` : ""}`],
      ["fate", group.why],
      ["step", group.born === group.step ? `${group.step}` : `${group.step}, sampled in ${group.born}`],
      ["group", group.group],
      this.several ? ["run", run] : null,
      group.disputed ? ["disputed", `${group.disputed} answers whose reward is not the true score`] : null,
    ].filter(Boolean);
    const prompt = [html("h4", {}, "prompt"), html("pre", {}, html("bdi", {}, group.prompt))];
    if (group.gold !== null) prompt.push(html("h4", {}, "right answer"), html("pre", {}, html("bdi", {}, group.gold)));
    const more = group.more ? html("p", { class: "note" }, `and ${group.more} more distinct answers, each rarer or as rare`) : null;
    return [
      html("h3", {}, html("span", { class: "kind" }, group.kind), " ", html("bdi", {}, group.problem)),
      html("dl", {}, facts.map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, html("bdi", {}, value))))),
      ...prompt,
      html("h4", {}, "distinct answers"),
      html("div", { class: "answers" }, group.answers.map((answer, i) => answerOf(answer, group, i))),
      more,
    ].filter(Boolean);
  }
}

/* One distinct answer; opens to a sample of its text. */
function answerOf(answer, group, i) {
  const share = answer.count / group.n;
  const bar = html("span", { class: `meter ${answer.right ? "right" : "wrong"}` }, html("i", {}));
  bar.firstChild.style.setProperty("width", `${100 * share}%`);
  const verdicts = Object.entries(answer.verdicts).sort((a, b) => b[1] - a[1]);
  const chips = verdicts.map(([kind, count]) => html("span", { class: `chip ${kind}` }, verdicts.length > 1 ? `${kind} ${count}` : kind));
  const advantage = answer.advantage === null ? "not in the update" : `advantage ${answer.advantage >= 0 ? "+" : "−"}${Math.abs(answer.advantage).toFixed(2)}`;
  return html(
    "details",
    { open: i === 0 },
    html("summary", {}, html("span", { class: "votes" }, `${answer.count}×`), bar, html("bdi", { class: "name" }, answer.answer), chips, html("span", { class: "sub" }, advantage)),
    html("pre", {}, html("bdi", {}, answer.text)),
    html("p", { class: "sub" }, `sample ${answer.sample}, stopped by ${answer.stop}${answer.reason ? `; grader: ${answer.reason}` : ""}`),
  );
}

function searchable(entry) {
  if (entry.words === undefined) {
    const { group } = entry;
    const parts = [group.problem, group.group, group.prompt, group.gold ?? "", ...group.answers.flatMap((a) => [a.answer, a.text])];
    entry.words = parts.join("\n").toLowerCase();
  }
  return entry.words;
}
