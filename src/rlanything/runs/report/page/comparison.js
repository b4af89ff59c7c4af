// Several runs side by side: one column and one colour each.

function comparison(runs, against) {
  const names = (kind) => [...new Set(runs.flatMap((run) => run[kind].map((each) => each.gain.name)))];
  const cell = (run, kind, name) => {
    const found = run[kind].find((each) => each.gain.name === name);
    if (!found) return "–";
    const { before, after, change } = found.gain;
    if (!change) return level(after);
    return [`${percent(before.estimate)} → ${percent(after.estimate)}`, el("br"), el("span", { class: "soft" }, points(change)), el("br"),
      el("span", { class: `tag ${MEANS[found.verdict] || ""}` }, found.verdict)];
  };
  const rows = [
    ...names("policy").map((name) => [`policy, ${name}`, ...runs.map((run) => cell(run, "policy", name))]),
    ...names("policy").filter((name) => against.some((each) => each.some((one) => one.split === name))).map((name) =>
      [`${name}, against ${runs[0].label}`, "–", ...against.map((each) => {
        const found = each.find((one) => one.split === name);
        return found ? points(found.change) : "–";
      })]),
    ...names("judge").map((name) => [`judge, ${name}`, ...runs.map((run) => cell(run, "judge", name))]),
    ["tasks accepted of proposed", ...runs.map((run) => `${whole(run.tasks.accepted)} of ${whole(run.tasks.proposed)}`)],
    ["iterations", ...runs.map((run) => `${run.iterations}${run.planned ? ` of ${run.planned}` : ""}, ${run.state}`)],
    ["time in phases", ...runs.map((run) => seconds(Object.entries(run.metrics).filter(([name]) => name.startsWith("seconds/"))
      .reduce((sum, [, values]) => sum + values.reduce((s, value) => s + (value || 0), 0), 0)))],
  ];
  const overlay = (kind) => {
    const curves = [...new Set(runs.flatMap((run) => run[kind].map((curve) => curve.name)))];
    return curves.map((name) => lineChart({
      title: `${kind === "policy_curves" ? "policy" : "judge"}: ${name}`, what: "With 95% intervals", format: percent,
      series: runs.flatMap((run, color) => run[kind].filter((curve) => curve.name === name).map((curve) => curveSeries(curve, color % 6, run.label))),
    }));
  };
  return [
    section("summary", "Side by side", "Before → after, the paired change with its 95% interval; against the first run on the held-out tasks that both played.",
      el("div", { class: "card wide", tabindex: 0, role: "region", "aria-label": "Comparison" }, table(["", ...runs.map((run) => run.label)], rows))),
    section("curves", "Learning curves", null, el("div", { class: "charts" }, overlay("policy_curves"), overlay("judge_curves"))),
    section("diagnostics", "Diagnostics", "From each iteration's own rollouts.", plots(runs)),
  ];
}
