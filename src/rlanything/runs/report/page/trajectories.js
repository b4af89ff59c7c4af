// The trajectory browser: a filtered list of episodes, and everything that was said in one.

const REASONS = {
  latest: "the latest iteration", first: "the first", disagreement: "those where judge and outcome differ most",
  rewritten: "those of rewritten tasks", spread: "all, evenly",
};

function episodesOf(run, number) {
  const at = Object.fromEntries(run.index.columns.map((name, i) => [name, i]));
  return run.index.rows.map((row) => {
    const task = run.index.tasks[row[at.task]];
    const pick = Object.fromEntries(run.index.columns.map((name) => [name, row[at[name]]]));
    return { ...pick, task, run, number, rewritten: task.slot !== "" && task.slot !== task.id,
      share: pick.judged ? pick.differs / pick.judged : 0, words: `${task.instruction} ${task.id} ${task.kind}`.toLowerCase() };
  });
}

const FILTERS = {
  iteration: (e, value) => String(e.iteration) === value,
  outcome: (e, value) => String(e.outcome) === value,
  judge: (e, value) => value === "split" ? e.split > 0 : value === "differs" ? e.differs > 0 : value === "mostly" ? e.share > 0.5 : e.differs === 0,
  warning: (e, value) => e.run.warnings.some((each) => each.name === value && each.iteration <= e.iteration),
  tasks: (e, value) => value === "rewritten" ? e.rewritten : !e.rewritten,
  run: (e, value) => String(e.number) === value,
  words: (e, value) => e.words.includes(value.toLowerCase()),
};

const SORTS = {
  newest: (one, two) => two.iteration - one.iteration,
  oldest: (one, two) => one.iteration - two.iteration,
  disagreement: (one, two) => two.share - one.share || two.judged - one.judged,
};

function trajectories(runs) {
  const all = runs.flatMap(episodesOf);
  const ids = new Set(all.map((e) => e.task.id)); // searched for in full: `train-1` is not `train-10`
  const iterations = [...new Set(all.map((e) => e.iteration))].sort((one, two) => two - one);
  const warned = [...new Set(runs.flatMap((run) => run.warnings.map((each) => each.name)))];
  const choice = (values) => el("select", null, values.map(([value, text]) => el("option", { value }, text)));
  const fields = {
    ...(runs.length > 1 ? { run: choice([["", "all"], ...runs.map((run, i) => [String(i), run.label])]) } : {}),
    words: el("input", { type: "search", placeholder: "words of a task" }),
    outcome: choice([["", "any"], ["1", "won"], ["-1", "lost"]]),
    iteration: choice([["", "all"], ...iterations.map((t) => [String(t), String(t)])]),
    judge: choice([["", "says anything"], ["differs", "differs from outcome"], ["mostly", "mostly differs"], ["agrees", "never differs"],
      ...(runs.some((run) => run.judges.length > 1) ? [["split", "judges contradict each other"]] : [])]),
    tasks: choice([["", "all"], ["root", "as they were"], ["rewritten", "rewritten"]]),
    ...(warned.length ? { warning: choice([["", "any or none"], ...warned.map((name) => [name, `since ${name}`])]) } : {}),
  };
  const order = choice([["newest", "newest"], ["oldest", "oldest"], ["disagreement", "most disagreement"]]);
  const labels = { run: "run", words: "task", outcome: "outcome", iteration: "iteration", judge: "judge", tasks: "tasks", warning: "warning" };
  const count = el("span", { class: "count", role: "status" });
  const clear = el("button", { type: "button", onclick: () => { reset({}); } }, "Clear");
  const list = el("ul", { class: "list", "aria-label": "Episodes" });
  const detail = el("div", { class: "episode", tabindex: -1, "aria-live": "off" }, el("p", { class: "soft" }, "Choose an episode."));
  const buttons = new Map();
  let current = null;

  function update() {
    const active = Object.entries(fields).filter(([, field]) => field.value !== "");
    const keeps = (e, name, value) => name === "words" && ids.has(value) ? e.task.id === value : FILTERS[name](e, value);
    const found = all.filter((e) => active.every(([name, field]) => keeps(e, name, field.value)));
    found.sort(SORTS[order.value]);
    count.textContent = `${whole(found.length)} of ${counted(all.length, "episode")}`;
    growing(list, found, item, 60);
    list.scrollTop = 0;
    return found;
  }

  function item(e) {
    const button = el("button", { type: "button", "aria-current": String(e === current), onclick: () => open(e, true) },
      el("span", { class: "task" }, e.task.instruction || e.task.id),
      el("span", { class: "facts" }, outcomeMark(e), [`iteration ${e.iteration}`, counted(e.steps, "step"), e.rewritten ? "rewritten" : "",
        e.differs ? `judge differs on ${e.differs}` : "", e.split ? `judges contradict each other on ${e.split}` : "", runs.length > 1 ? e.run.label : ""].filter(Boolean).map((text) => el("span", null, text))));
    buttons.set(e, button);
    return el("li", null, button);
  }

  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const all = [...list.querySelectorAll("button")];
    const next = all[all.indexOf(document.activeElement) + step];
    if (next) { event.preventDefault(); next.focus(); }
  });

  async function open(e, move) {
    current = e;
    const button = buttons.get(e);
    for (const each of list.querySelectorAll("[aria-current]")) each.setAttribute("aria-current", String(each === button));
    const group = await chunk(e.chunk);
    if (current !== e) return;
    detail.replaceChildren(...episode(e, group[e.place]).flat());
    const top = home.querySelector(".bar").getBoundingClientRect().bottom;
    if (move && detail.getBoundingClientRect().top < 0) window.scrollBy(0, detail.getBoundingClientRect().top - top - 12);
  }

  function reset(values) {
    for (const [name, field] of Object.entries(fields)) field.value = values[name] || "";
    const found = update();
    if (found.length) open(found[0], false);
  }

  for (const field of [...Object.values(fields), order]) field.addEventListener("input", update);
  const total = runs.reduce((sum, run) => sum + run.episodes, 0);
  const forgotten = runs.reduce((sum, run) => sum + run.forgotten, 0);
  const fewer = all.length < total - forgotten
    ? `In this page are ${whole(all.length)} of them, to keep it small, taken by and by from: ${Object.values(REASONS).join("; ")}.` : `All ${forgotten ? "others" : "of them"} are in this page.`;
  const gone = forgotten ? ` The texts of ${whole(forgotten)} were forgotten, as the recipe asks (store.keep_iterations).` : "";
  const home = section("trajectories", "Trajectories", `${counted(total, "episode")} of training so far.${gone}${total > forgotten ? ` ${fewer}` : ""}`,
    all.length ? [el("div", { class: "bar", role: "search", "aria-label": "Filter episodes" },
      Object.entries(fields).map(([name, field]) => el("label", null, labels[name], field)), el("label", null, "order", order), clear, count),
    el("div", { class: "browser" }, list, detail)] : null);

  function go(values, sort) {
    order.value = sort || "newest";
    reset(values);
    home.scrollIntoView();
    fields.words.focus({ preventScroll: true });
  }

  // The episode that the page's address names, if it is in the page.
  function follow() {
    const named = location.hash.startsWith("#episode/") && all.find((e) => address(e) === location.hash);
    if (!named) return;
    home.scrollIntoView();
    open(named, false);
  }
  window.addEventListener("hashchange", follow);

  return {
    home,
    start: () => { if (all.length) { reset({}); follow(); } },
    // A link to the episodes since a warning, where there are any in the page.
    since(run, name) {
      const found = all.filter((e) => e.run === run && FILTERS.warning(e, name));
      const values = { warning: name, ...(runs.length > 1 ? { run: String(runs.indexOf(run)) } : {}) };
      return found.length ? el("button", { type: "button", class: "link small", onclick: () => go(values, "oldest") }, `${counted(found.length, "episode")} since then`) : null;
    },
    // The episodes in which judge and outcome differ most, as links into the browser.
    links(run) {
      const mine = all.filter((e) => e.run === run && e.differs);
      if (!mine.length) return el("p", { class: "small soft" }, "None of the episodes in this page shows it.");
      const seen = new Set();
      const worst = [...mine].sort((one, two) => SORTS.disagreement(one, two) || SORTS.newest(one, two))
        .filter((e) => !seen.has(e.task) && seen.add(e.task)).slice(0, 3);
      const number = runs.length > 1 ? String(worst[0].number) : "";
      return el("div", null, worst.map((e) => el("div", { class: "gain small" },
        el("button", { type: "button", class: "link", onclick: () => { go({ run: number, judge: "differs" }, "disagreement"); open(e, false); } }, e.task.instruction || e.task.id),
        el("div", { class: "soft" }, outcomeMark(e), ` in iteration ${e.iteration}; the judge says otherwise on ${e.differs} of ${counted(e.judged, "step")}`))),
      el("p", { class: "small" }, el("button", { type: "button", class: "link", onclick: () => go({ run: number, judge: "differs" }, "disagreement") }, `All ${whole(mine.length)} in the browser`)));
    },
    // A link to a task's episodes, where there are any in the page.
    task(run, id) {
      const found = all.filter((e) => e.run === run && e.task.id === id);
      return found.length ? el("button", { type: "button", class: "link small", onclick: () => go({ words: id }) }, counted(found.length, "episode")) : null;
    },
  };
}

// Its own place in the page, which can be sent to somebody who has the same file.
const address = (e) => `#episode/${e.number}/${encodeURIComponent(`${e.iteration}/${e.task.id}/${e.attempt}`)}`;

const outcomeMark = (e) => e.outcome === 1 ? el("span", { class: "won" }, "✓ won") : el("span", { class: "lost" }, "✗ lost");

function episode(e, content) {
  return [
    el("h3", null, e.task.instruction || e.task.id),
    el("p", { class: "small soft" }, outcomeMark(e), ` · iteration ${e.iteration} · attempt ${e.attempt} · ${counted(e.steps, "step")}`,
      known(e.reward) ? ` · reward ${short(e.reward)}` : "", e.rewritten ? " · rewritten task" : "", e.task.kind ? ` · ${e.task.kind}` : "", ` · ${e.task.id} · `, el("a", { href: address(e) }, "link")),
    content.steps.map((step, i) => stepCard(e, step, i, content.observations[i])),
    content.steps.length ? el("div", { class: "card step" }, el("dl", { class: "parts" }, el("dt", null, "in the end"), el("dd", null, el("pre", { class: "said seen", tabindex: 0 }, content.observations.at(-1))))) : el("p", null, "No step was taken."),
  ];
}

// What was said beside the action, without the marks around it.
function thought(step) {
  const at = step.action ? step.said.lastIndexOf(step.action) : -1;
  if (at < 0) return step.said;
  const before = step.said.slice(0, at).trimEnd().replace(/(```\w*|>)$/, "");
  const after = step.said.slice(at + step.action.length).trimStart().replace(/^```/, "");
  return `${before.trimEnd()}\n${after.trim()}`.trim();
}

const majority = (step) => Math.sign(step.judgements.reduce((sum, [, score]) => sum + score, 0));

function stepCard(e, step, i, observation) {
  const says = majority(step), differs = !step.by && says * e.outcome < 0;
  const reasoning = thought(step);
  return el("div", { class: `card step${differs ? " differs" : ""}` },
    el("div", { class: "head" }, el("h4", null, `Step ${i + 1}`),
      step.by ? el("span", { class: "tag" }, step.by) : null,
      step.valid ? null : el("span", { class: "tag bad" }, step.action === null ? "no action" : "invalid action"),
      known(step.label) && step.label !== 0 ? el("span", { class: "tag" }, `oracle: ${step.label === 1 ? "good" : "bad"} step`) : null,
      differs ? el("span", { class: "tag" }, `judge says ${signed(says, 0)}, outcome ${signed(e.outcome, 0)}`) : null,
      step.split ? el("span", { class: "tag" }, "judges contradict each other") : null,
      el("div", { class: "figures" },
        el("span", { title: rewardSaid(e.run.rewards) }, "R ", el("b", null, known(step.feedback) ? signed(step.feedback, 2) : "none")),
        el("span", { title: "standardized over the attempts at this task" }, "advantage ", el("b", null, known(step.advantage) ? signed(step.advantage, 2) : "none")))),
    el("dl", { class: "parts" },
      el("dt", null, "observation"), el("dd", null, screen(step), el("pre", { class: "said seen", tabindex: observation.length > 700 ? 0 : null }, observation)),
      reasoning ? [el("dt", null, "thought"), el("dd", null, el("pre", { class: "said" }, reasoning))] : null,
      el("dt", null, "action"), el("dd", null, step.action === null ? el("span", { class: "soft" }, "none was found in the answer") : el("pre", { class: "said" }, el("b", null, step.action))),
      el("dt", null, counted(step.judgements.length, "judgement")),
      el("dd", null, step.judgements.map(([text, score, advantage, by]) => el("div", { class: "judgement" },
        el("span", { class: `score ${score > 0 ? "plus" : score < 0 ? "minus" : ""}`, title: score ? null : "no score could be read" }, score ? signed(score, 0) : "?"),
        text ? el("pre", { class: "said" }, text) : el("span", { class: "soft small" }, "(empty)"),
        el("span", { class: "small soft", title: "the judge's advantage; it trains on those that have one" },
          [e.run.judges.length > 1 ? by : "", known(advantage) ? `advantage ${signed(advantage, 2)}` : ""].filter(Boolean).join(" · ")))))));
}

function screen(step) {
  if (!step.image) return null;
  const address = image(step.image);
  if (!address) return el("p", { class: "small soft" }, `screenshot: images/${step.image}`);
  const share = (value) => `${100 * value}%`;
  const marks = step.points.map(([x, y]) => draw("circle", { cx: share(x), cy: share(y), r: 7 }));
  return el("div", { class: "screen" }, el("img", { src: address, alt: "What the agent saw" }),
    marks.length ? draw("svg", { role: "img", "aria-label": "where the action pointed" }, marks) : null);
}

function rewardSaid({ kind, weight, lambdas }) {
  if (kind === "outcome") return "what the episode earned";
  return `${kind === "integrated" ? "Eq. 1: outcome + " : ""}${Object.keys(lambdas).length ? "adaptive lambda" : weight} × mean score`;
}
