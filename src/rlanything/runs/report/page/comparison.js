// Several runs side by side: one column and one colour each.

function comparison(runs, against, browser) {
  const every = (of) => [...new Set(runs.flatMap(of))];
  const role = (run, name) => [run.policy, ...run.judges].find((each) => each.name === name) || { verdicts: [], curves: [] };
  const names = (name, kind) => every((run) => role(run, name)[kind].map((each) => each.gain ? each.gain.name : each.name));
  const policies = every((run) => [run.policy.name]), judges = every((run) => run.judges.map((judge) => judge.name));
  const cell = (run, who, name) => {
    const found = role(run, who).verdicts.find((each) => each.gain.name === name);
    if (!found) return "–";
    const { before, after, change } = found.gain;
    if (!change) return level(after);
    return [`${percent(before.estimate)} → ${percent(after.estimate)}`, el("br"), el("span", { class: "soft" }, points(change)), el("br"),
      el("span", { class: `tag ${MEANS[found.verdict] || ""}` }, found.verdict)];
  };
  const verdicts = (who) => names(who, "verdicts").map((name) => [`${who}, ${name}`, ...runs.map((run) => cell(run, who, name))]);
  const splits = [...new Set(against.flatMap((each) => each.map((one) => one.split)))];
  const rows = [
    ...policies.flatMap(verdicts),
    ...splits.map((name) => [`${name}, against ${runs[0].label}`, "–", ...against.map((each) => {
      const found = each.find((one) => one.split === name);
      return found ? points(found.change) : "–";
    })]),
    ...judges.flatMap(verdicts),
    ["tasks accepted of proposed", ...runs.map((run) => `${whole(run.tasks.accepted)} of ${whole(run.tasks.proposed)}`)],
    ["iterations", ...runs.map((run) => `${run.iterations}${run.planned ? ` of ${run.planned}` : ""}, ${run.state}`)],
    ["time in phases", ...runs.map((run) => seconds(Object.entries(run.metrics).filter(([name]) => name.startsWith("seconds/"))
      .reduce((sum, [, values]) => sum + values.reduce((s, value) => s + (value || 0), 0), 0)))],
  ];
  const overlay = (who) => names(who, "curves").map((name) => lineChart({
    title: `${who}: ${name}`, what: "With 95% intervals", format: percent,
    series: runs.flatMap((run, color) => role(run, who).curves.filter((curve) => curve.name === name).map((curve) => curveSeries(curve, color % 6, run.label))),
  }));
  return [
    section("summary", "Side by side", "Before → after, the paired change with its 95% interval; against the first run on the held-out tasks that both played.",
      el("div", { class: "card wide", tabindex: 0, role: "region", "aria-label": "Comparison" }, table(["", ...runs.map((run) => run.label)], rows))),
    section("curves", "Learning curves", null, el("div", { class: "charts" }, [...policies, ...judges].map(overlay))),
    warnings(runs, browser),
    section("diagnostics", "Diagnostics", "From each iteration's own rollouts.", plots(runs)),
  ];
}
