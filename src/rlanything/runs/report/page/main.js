// The page, from top to bottom.

const curveSeries = (curve, color, name) => ({
  name: name || curve.name, color, dots: curve.held_out,
  points: curve.points.map((p) => ({ x: p.iteration, y: p.estimate, low: p.low, high: p.high })),
});

function curves(run) {
  const chart = (title, what, found, first) => found.length
    ? lineChart({ title, what, format: percent, series: found.map((curve, i) => curveSeries(curve, (i + first) % 6)) }) : null;
  const of = (found, held) => found.filter((curve) => curve.held_out === held);
  // Several judges: a chart of each measure, with a line for each judge.
  const compared = (title, what, held) => [...new Set(run.judges.flatMap((judge) => of(judge.curves, held).map((curve) => curve.name)))]
    .map((name) => lineChart({ title: `${title}: ${name}`, what, format: percent, series: run.judges.flatMap((judge, color) =>
      of(judge.curves, held).filter((curve) => curve.name === name).map((curve) => curveSeries(curve, color % 6, judge.name))) }));
  const judges = (title, what, held) => run.judges.length > 1 ? compared(title, what, held) : run.judges.map((judge) => chart(title, what, of(judge.curves, held), 2));
  const all = [
    chart("Policy, held out", "Success on tasks that never train; whiskers: 95%", of(run.policy.curves, true), 0),
    ...judges("Judge, held out", "The same recorded episodes, judged again; whiskers: 95%", true),
    chart("Policy, in training", "Success of each iteration's rollouts of active tasks; band: 95% over tasks. Tasks are drawn again, and rewritten ones are harder or easier", of(run.policy.curves, false), 5),
    ...judges("Judge, in training", "Its majority on each iteration's rollouts; band: 95% over tasks", false),
  ].filter(Boolean);
  return section("curves", "Learning curves", null, all.length ? el("div", { class: "charts" }, all) : el("p", null, "Nothing was measured yet."));
}

function warnings(runs, browser) {
  const found = runs.flatMap((run) => run.warnings.map((each) => ({ run, each })));
  return section("warnings", "Warnings", null, found.length ? found.map(({ run, each }) => el("div", { class: "card warning" },
    el("b", null, each.name), el("span", { class: "soft small" }, ` from iteration ${each.iteration}${runs.length > 1 ? ` of ${run.label}` : ""}`),
    el("p", null, each.message), el("p", { class: "soft" }, each.remedy), browser.since(run, each.name))) : el("p", { class: "soft" }, "None."));
}

function head(run) {
  const progress = run.planned ? `${run.iterations} of ${counted(run.planned, "iteration")}` : counted(run.iterations, "iteration");
  return el("header", null, el("h1", null, run.name, " ", el("span", { class: `tag ${run.state === "stopped" ? "bad" : ""}` }, run.state)),
    el("p", { class: "soft" }, [run.domain, progress, counted(run.episodes, "episode"), run.begun ? `begun ${when(run.begun)}` : "",
      run.updated ? `last iteration kept ${when(run.updated)}` : "", run.version ? `rlanything ${run.version}` : ""].filter(Boolean).join(" · ")));
}

const menu = (sections) => el("nav", { class: "places", "aria-label": "Sections" },
  sections.map((each) => el("a", { href: `#${each.id}` }, each.querySelector("h2").textContent)));

function page({ runs, against, meanings }) {
  const main = document.getElementById("main");
  runs.forEach((run, i) => {
    const others = runs.filter((other) => other !== run && other.name === run.name);
    const parts = run.directory.split("/");
    const tail = parts.map((_, depth) => parts.slice(-1 - depth).join("/"))
      .find((end) => others.every((other) => !`/${other.directory}`.endsWith(`/${end}`)));
    run.label = others.length ? `${run.name} (${tail ?? i + 1})` : run.name;
  });
  const browser = trajectories(runs);
  if (runs.length > 1) {
    const parts = [...comparison(runs, against, browser), browser.home];
    main.replaceChildren(el("header", null, el("h1", null, `${counted(runs.length, "run")} compared`), el("p", { class: "soft" }, runs.map((run) => run.label).join(" · "))), menu(parts), ...parts);
  } else {
    const [run] = runs;
    const summary = section("summary", "Summary", null, headlines(run, browser));
    const parts = [summary, curves(run), warnings(runs, browser), lineage(run, browser), diagnostics(run, meanings), times(run), browser.home].filter(Boolean);
    main.replaceChildren(head(run), menu(parts), ...parts);
  }
  browser.start();
}

page(JSON.parse(document.getElementById("facts").textContent));
