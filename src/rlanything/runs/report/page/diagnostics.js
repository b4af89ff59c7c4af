// Every metric of the run, the important ones large; and where the time went.

const PLOTS = [
  { title: "Does the judge tell won from lost? p₊ and p₋", what: "Share of +1 on steps of won, of −1 on steps of lost episodes",
    metrics: { "JUDGE/p_plus": "p₊", "JUDGE/p_minus": "p₋" }, format: percent },
  { title: "μ = p₊ + p₋", what: "Above 1, more judgements help (Theorem 1)", metrics: { "JUDGE/mu": "μ" }, references: [{ y: 1, label: "1" }] },
  { title: "Reward precision", what: "How often a won step scores above a lost one, and Theorem 1's lower bound (ties count against it)",
    metrics: { "JUDGE/reward_precision": "precision", "JUDGE/precision_bound": "bound" }, format: percent },
  { title: "Weight ratio |f₊| / |f₋|", what: "Task difficulty keeps it near 1 (Theorem 2)", metrics: { "JUDGE/weight_ratio": "ratio" }, references: [{ y: 1, label: "1" }] },
  { title: "The judge's share of +1", what: "At 0 or 1 it has stopped judging", metrics: { "JUDGE/positive_rate": "+1" }, format: percent, references: [{ y: 0.1, label: "10%" }, { y: 0.9, label: "90%" }] },
  { title: "Brier score of its stated chances", what: "Reliability − resolution + uncertainty; 0 is best, the uncertainty is what the mean chance alone would get",
    metrics: { "JUDGE/brier": "Brier", "JUDGE/reliability": "reliability", "JUDGE/resolution": "resolution", "JUDGE/uncertainty": "uncertainty" } },
  { title: "What its tests are worth", what: "UT: passed by all correct programs; Detect: and failed by all wrong ones", metrics: { "JUDGE/ut": "UT", "JUDGE/detect": "Detect" }, format: percent },
  { title: "KL from the sampling policy", what: "Mean per token over the update, k3 estimate", metrics: { "ROLE/kl": "ROLE" } },
  { title: "Entropy", what: "Mean per token, nats", metrics: { "ROLE/entropy": "ROLE" } },
  { title: "Proposals", what: "Asked for, found valid, then accepted or rejected by accuracy",
    metrics: { "tasks/asked": "asked", "tasks/proposed": "valid", "tasks/accepted": "accepted", "tasks/rejected": "rejected" } },
];

const metricPoints = (run, name) => run.metric_iterations
  .map((x, i) => ({ x, y: run.metrics[name][i] })).filter((point) => point.x > 0 || name.startsWith("evaluation/"));

const measured = (run, name) => name in run.metrics && run.metrics[name].some(known);

// Least squares: how many tasks an iteration adds.
function fit(points) {
  const n = points.length, mx = points.reduce((s, p) => s + p.x, 0) / n, my = points.reduce((s, p) => s + p.y, 0) / n;
  const spread = points.reduce((s, p) => s + (p.x - mx) ** 2, 0);
  const slope = spread ? points.reduce((s, p) => s + (p.x - mx) * (p.y - my), 0) / spread : 0;
  return { slope, at: (x) => my + slope * (x - mx) };
}

function cumulative(run) {
  let sum = 0;
  return metricPoints(run, "tasks/accepted").map((p) => ({ x: p.x, y: sum += p.y || 0 }));
}

// The plots of some runs: those about a judge once for each, those about roles with a line for each.
function plotsOf(runs) {
  const every = (of) => [...new Set(runs.flatMap(of))];
  const judges = every((run) => run.judges.map((judge) => judge.name)), roles = every((run) => run.roles);
  return PLOTS.flatMap((plot) => {
    const asked = Object.entries(plot.metrics), judged = asked.some(([name]) => name.startsWith("JUDGE/"));
    return (judged ? judges : [""]).map((judge) => ({ ...plot, title: judged && judges.length > 1 ? `${plot.title}: ${judge}` : plot.title,
      metrics: Object.fromEntries(asked.flatMap(([name, label]) => label === "ROLE" ? roles.map((role) => [name.replace("ROLE", () => role), role])
        : [[name.replace("JUDGE", () => judge), label]])) }));
  });
}

const GRADES = [...Array(11).keys()];

// What share of episodes is won where a judge of value says so many tenths, first and latest.
function calibrations(run) {
  return run.judges.flatMap((judge) => {
    const room = ["evaluation/", ""].find((each) => GRADES.some((g) => measured(run, `${each}${judge.name}/won_at_grade_${g}`)));
    if (room === undefined) return [];
    const at = (grade, i) => (run.metrics[`${room}${judge.name}/won_at_grade_${grade}`] || [])[i];
    const places = run.metric_iterations.map((x, i) => ({ x, i })).filter(({ i }) => GRADES.some((grade) => known(at(grade, i))));
    const ends = places.length > 1 ? [places[0], places.at(-1)] : places;
    const series = ends.map(({ x, i }, color) => ({ name: x ? `iteration ${x}` : "before training", color, dots: true,
      points: GRADES.map((grade) => ({ x: grade, y: at(grade, i) })).filter((p) => known(p.y)) }));
    const ideal = { name: "calibrated", color: 6, dashed: true, points: GRADES.map((grade) => ({ x: grade, y: grade / 10 })) };
    return [{ title: run.judges.length > 1 ? `Calibration: ${judge.name}` : "Calibration", unit: "grade", format: percent, series: [...series, ideal],
      what: `Share of won episodes by the judge's grade, ${room ? "held out" : "in the rollouts"}` }];
  });
}

// A chart of each plot; one series a metric, or, of several runs, one a run and metric.
function plots(runs) {
  const found = plotsOf(runs).flatMap((plot) => {
    const names = Object.keys(plot.metrics).filter((name) => runs.some((run) => measured(run, name)));
    if (!names.length) return [];
    if (runs.length === 1) return [{ ...plot, series: names.map((name, color) => ({ name: plot.metrics[name], color, points: metricPoints(runs[0], name) })) }];
    return names.map((name) => ({ ...plot, title: names.length > 1 ? `${plot.title}: ${plot.metrics[name]}` : plot.title,
      series: runs.flatMap((run, color) => measured(run, name) ? [{ name: run.label, color: color % 6, points: metricPoints(run, name) }] : []) }));
  });
  const grown = runs.filter((run) => measured(run, "tasks/accepted"));
  if (grown.length) {
    const series = grown.map((run, color) => ({ name: runs.length > 1 ? run.label : "accepted", color: color % 6, points: cumulative(run) }));
    const line = fit(series[0].points);
    const single = runs.length === 1 && series[0].points.length > 2;
    if (single) series.push({ name: "linear fit", color: 6, dashed: true, points: series[0].points.map((p) => ({ x: p.x, y: line.at(p.x) })) });
    found.push({ title: "Accepted tasks so far", what: single ? `About ${short(line.slope)} an iteration` : "Cumulative", series });
  }
  if (runs.length === 1) found.push(...calibrations(runs[0]));
  return el("div", { class: "charts" }, found.map((each) => lineChart(each)));
}

function diagnostics(run, meanings) {
  const large = new Set(plotsOf([run]).flatMap((plot) => Object.keys(plot.metrics)));
  const groups = new Map();
  for (const name of Object.keys(run.metrics)) {
    if (large.has(name) || name.startsWith("seconds/") || !measured(run, name)) continue;
    const room = name.split("/")[0];
    groups.set(room, [...(groups.get(room) || []), name]);
  }
  const rest = [...groups].map(([room, names]) => {
    const details = el("details", { class: "group" }, el("summary", null, `${room}: ${counted(names.length, "more metric")}`));
    details.addEventListener("toggle", () => {
      if (!details.open || details.childElementCount > 1) return;
      details.append(el("div", { class: "charts few" }, names.map((name) => lineChart({
        title: quantity(name), what: meanings[name], small: true, series: [{ name, color: 0, points: metricPoints(run, name), dots: room === "evaluation" }] }))));
    });
    return details;
  });
  return section("diagnostics", "Diagnostics", "What the theory says to watch, from each iteration's own rollouts, and every other metric as small plots.", plots([run]), rest);
}

function times(run) {
  const names = Object.keys(run.metrics).filter((name) => name.startsWith("seconds/"));
  const total = (name) => run.metrics[name].reduce((sum, value) => sum + (value || 0), 0);
  names.sort((one, two) => total(two) - total(one));
  if (!names.length) return null;
  const main = names.slice(0, 6), others = names.slice(6);
  const label = (name) => quantity(name);
  const rows = run.metric_iterations.map((x, i) => {
    const parts = Object.fromEntries(main.map((name) => [label(name), run.metrics[name][i]]));
    if (others.length) parts["everything else"] = others.reduce((sum, name) => sum + (run.metrics[name][i] || 0), 0);
    return { x, parts };
  }).filter((row) => Object.values(row.parts).some((value) => value));
  const all = names.reduce((sum, name) => sum + total(name), 0);
  const stack = others.length ? [...main.map(label), "everything else"] : main.map(label);
  return section("time", "Where the time went", `${seconds(all)} in phases so far; an evaluation counts with the iteration that follows it, the last one not at all.`,
    barChart({ title: "Seconds of each phase", what: "By iteration, stacked", names: stack, rows, format: seconds }));
}
