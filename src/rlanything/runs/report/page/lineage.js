// Root tasks and what became of them: asked for why, by which critics, with which accuracies.

const critics = (slot, task) =>
  [...new Set(slot.history.filter((event) => event.task === task).flatMap((event) => event.critics))];

function slotCard(slot, showTask) {
  return el("div", { class: "card slot" },
    el("div", null, el("span", { class: "soft small" }, "root task "), el("b", null, slot.root || slot.slot),
      " ", slot.active === slot.slot ? el("span", { class: "tag" }, "still as it was") : el("span", { class: "tag good" }, "rewritten"),
      slot.quarantined ? el("span", { class: "tag bad" }, `quarantined: ${slot.quarantined}`) : null),
    el("ol", { class: "history" }, slot.history.map((event) => el("li", null,
      event.event === "proposed"
        ? [el("div", { class: "small soft" }, `iteration ${event.iteration}: won ${percent(event.parent_accuracy)}, so something ${event.direction} was asked for`),
          event.critics.map((text) => el("div", { class: "quote small" }, `critic: ${text}`)),
          el("div", null, "→ ", event.instruction)]
        : [el("span", { class: `tag ${event.event === "accepted" ? "good" : "bad"}` }, event.event === "accepted" ? "✓ accepted" : "✗ rejected"),
          el("span", { class: "small soft" }, ` iteration ${event.iteration}`, known(event.candidate_accuracy) ? `, won ${percent(event.candidate_accuracy)} after ${percent(event.parent_accuracy)}` : "", `: ${event.reason} `),
          showTask(event.task)]))));
}

function lineage(run, browser) {
  const t = run.tasks;
  const home = section("tasks", "Tasks and their lineage",
    "A task that is nearly always won, or nearly always lost, is rewritten from its root with what critics said of its failures. The rewrite stays if the accuracy of its first rollouts moved the way that was asked for: with few rollouts that is a noisy sign.");
  if (!run.lineage_total) {
    home.append(el("p", null, t.slots ? "No task has been rewritten so far." : "No iteration is kept yet."));
    return home;
  }
  const state = el("select", null, [["", "all"], ["accepted", "accepted"], ["rejected", "rejected"], ["proposed", "pending now"]].map(([value, text]) => el("option", { value }, text)));
  const search = el("input", { type: "search", placeholder: "words of a task or critic" });
  const count = el("span", { class: "count", role: "status" });
  const list = el("div", { class: "slots" });
  home.append(el("div", { class: "bar", role: "search", "aria-label": "Filter tasks" }, el("label", null, "ever", state), el("label", null, "search", search), count), list);
  chunk(run.lineage).then((slots) => {
    const texts = slots.map((slot) => JSON.stringify([slot.root, slot.history.map((e) => [e.instruction, e.critics, e.reason])]).toLowerCase());
    const less = run.lineage_shown < run.lineage_total ? `; of ${whole(run.lineage_total)} only these are in the page` : "";
    function update() {
      const words = search.value.toLowerCase();
      const found = slots.filter((slot, i) => (!state.value || (state.value === "proposed" ? slot.pending : slot.history.some((e) => e.event === state.value))) && texts[i].includes(words));
      count.textContent = `${whole(found.length)} of ${counted(slots.length, "slot")} with a history${less}`;
      growing(list, found, (slot) => slotCard(slot, (task) => browser.task(run, task)), 20);
    }
    state.addEventListener("change", update);
    search.addEventListener("input", update);
    update();
  });
  return home;
}
