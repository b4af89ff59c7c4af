// The four questions, answered first.

const MEANS = {
  "improved": "good", "got worse": "bad",
};

// "Yes" only where every interval is clear of 0.
function answer(verdicts, twice, fault) {
  if (!verdicts.length) return "Not measured in this run.";
  if (!twice) return "Not known yet: measured once so far.";
  if (verdicts.every((each) => each.verdict === "not trained")) return fault.includes("unreadable") ? `It could not learn: ${fault}.` : "It was not trained.";
  const better = verdicts.filter((each) => each.verdict === "improved").map((each) => each.gain.name);
  const worse = verdicts.filter((each) => each.verdict === "got worse").map((each) => each.gain.name);
  if (better.length === verdicts.length) return `Yes: ${spoken(better)} improved.`;
  if (better.length && !worse.length) return `Partly: ${spoken(better)} improved, the rest not clearly.`;
  if (better.length) return `Mixed: ${spoken(better)} improved, ${spoken(worse)} got worse.`;
  return worse.length ? `No: ${spoken(worse)} got worse.` : "Not clearly: every 95% interval holds 0.";
}

function gainRow(verdict, color, twice) {
  const { name, before, after, change } = verdict.gain;
  return el("div", { class: "gain" },
    el("div", { class: "levels" }, el("span", { class: "name" }, name),
      twice ? `${level(before)} → ${level(after)}` : level(after)),
    twice && change ? el("div", { class: "levels" }, points(change),
      el("span", { class: `tag ${MEANS[verdict.verdict] || ""}` }, verdict.verdict)) : null,
    twice ? dumbbell(before, after, color) : null);
}

function headlines(run, browser) {
  const twice = run.evaluated_iterations.length > 1;
  const measured = twice
    ? `Held out, never trained on: before training (hollow) and after iteration ${run.evaluated_iterations.at(-1)} (filled), with 95% intervals; the change is paired.`
    : "Held out, never trained on; with a 95% interval.";
  return el("div", { class: "answers" },
    el("div", { class: "card", id: "answer-policy" }, el("h3", null, "Did the policy improve?"),
      el("p", { class: "answer" }, answer(run.policy.verdicts, twice, "")),
      run.policy.verdicts.length ? el("p", { class: "soft small" }, measured) : null,
      run.policy.verdicts.map((each, i) => gainRow(each, i % 6, twice))),
    el("div", { class: "card", id: "answer-judge" }, el("h3", null, "Did the judge improve?"),
      run.judges.map((judge) => judged(run, judge, twice))),
    el("div", { class: "card", id: "answer-tasks" }, el("h3", null, "Which tasks were rewritten, and why?"), rewritten(run)),
    el("div", { class: "card", id: "answer-disagreement" }, el("h3", null, "Where does the judge disagree with the outcome?"),
      run.judges.map((judge, i) => [named(run, judge), differing(judge, i === run.judges.length - 1 ? browser.links(run) : null)])));
}

// A judge's name, where there are several.
const named = (run, judge) => run.judges.length > 1 ? el("h4", null, judge.name) : null;

function judged(run, judge, twice) {
  const positive = judge.positive_rate;
  return [named(run, judge),
    el("p", { class: "answer" }, answer(judge.verdicts, twice, judge.fault)),
    judge.verdicts.map((each, i) => gainRow(each, (i + 2) % 6, twice)),
    positive[1] === null ? null : el("p", { class: "small soft" },
      twice ? `It calls ${percent(positive[0])} of held-out steps good before, ${percent(positive[1])} after.` : `It calls ${percent(positive[1])} of held-out steps good.`,
      judge.fault ? el("span", { class: "tag bad" }, judge.fault) : null)];
}

function rewritten(run) {
  const t = run.tasks;
  const found = el("div", null,
    el("p", { class: "answer" }, t.proposed === 0 ? "None was proposed." : `${whole(t.accepted)} of ${counted(t.proposed, "candidate")} accepted.`),
    t.proposed ? el("p", { class: "small" }, `${whole(t.rejected)} rejected, ${whole(t.pending)} pending; ${whole(t.rewritten)} of ${counted(t.slots, "slot")} now hold a rewritten task.`,
      t.quarantined ? ` ${counted(t.quarantined, "task")} quarantined.` : "") : null);
  if (!run.lineage_total) return found;
  const list = el("div");
  chunk(run.lineage).then((slots) => {
    const recent = slots.flatMap((slot) => slot.history.filter((event) => event.event === "accepted")
      .map((event) => ({ slot, event }))).sort((one, two) => two.event.iteration - one.event.iteration).slice(0, 3);
    list.append(...recent.map(({ slot, event }) => el("div", { class: "gain" },
      el("div", null, el("span", { class: "soft" }, slot.root), " → ", el("b", null, event.instruction)),
      el("div", { class: "small soft" }, `${event.direction}: accuracy ${percent(event.parent_accuracy)} → ${percent(event.candidate_accuracy)}, iteration ${event.iteration}`),
      critics(slot, event.task).slice(0, 1).map((text) => el("div", { class: "quote small" }, text)))));
    list.append(el("p", { class: "small" }, el("a", { href: "#tasks" }, "All of them, with critics and reasons")));
  });
  found.append(list);
  return found;
}

function differing(judge, links) {
  const latest = judge.disagreements.at(-1);
  if (!latest) return el("p", { class: "answer" }, "No iteration is kept yet.");
  const c = latest.counts;
  const won = c.won_approved + c.won_rejected + c.won_undecided;
  const lost = c.lost_approved + c.lost_rejected + c.lost_undecided;
  if (!won && !lost) return el("p", { class: "answer" }, "Nothing was judged.");
  const differs = c.won_rejected + c.lost_approved, undecided = c.won_undecided + c.lost_undecided;
  if (undecided === won + lost) return el("p", { class: "answer" }, `Not known: no score was readable on any step of iteration ${latest.iteration}, or they cancel out.`);
  return el("div", null,
    el("p", { class: "answer" }, `On ${percent(differs / (won + lost))} of the steps of iteration ${latest.iteration}.`),
    undecided ? el("p", { class: "small" }, `It has no majority on ${percent(undecided / (won + lost))} of them (unreadable or divided scores).`) : null,
    el("p", { class: "small" }, `Its majority approves ${whole(c.lost_approved)} of ${counted(lost, "step")} of lost episodes (${lost ? percent(c.lost_approved / lost) : "–"})`
      + ` and rejects ${whole(c.won_rejected)} of ${counted(won, "step")} of won ones (${won ? percent(c.won_rejected / won) : "–"}).`),
    c.labelled ? el("p", { class: "small" }, `Where the two differ, the oracle's step labels side with the judge ${percent(c.sided / c.labelled)} of the time: good steps happen in lost episodes, so to differ is no error in itself.`) : null,
    links);
}
