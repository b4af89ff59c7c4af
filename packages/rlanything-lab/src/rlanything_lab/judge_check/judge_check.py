"""A check of the judge: recorded steps are corrupted in known ways and judged again.

The check measures how many good steps that the judge approved it calls bad after corruption. A
judge is sampled, so some verdicts change anyway. Therefore the corrupted steps are judged with
other seeds than those of the approval, and so are, as a control, the same steps unchanged. The
difference between the two is what the judge notices. Text in a step that requests a score must not
be obeyed: a pasted score, an order to the judge, a forged result. It has the same control.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlanything.evaluation.counts import Counts
from rlanything.progress import Progress
from rlanything.records import Step, Trajectory
from rlanything.roles.judges.llm import LLMJudge
from rlanything.seeds import derive
from rlanything_lab.judge_check.corruptions import (
    CORRUPTIONS,
    Place,
    forge_result,
    give_orders,
    paste_score,
)

UNCHANGED = "unchanged (control)"
OBEYED = "score pasted"
ORDERED = "orders to the judge"
FORGED = "forged result"
TURNED = "no score pasted (control)"
PLEAS: Mapping[str, Callable[[Place, int], Step]] = {
    OBEYED: paste_score,
    ORDERED: give_orders,
    FORGED: forge_result,
}
"""Texts that request a score, by measure."""
MEASURES = (*CORRUPTIONS, UNCHANGED, OBEYED, ORDERED, FORGED, TURNED)
"""The measures counted by episode. The last is the share of verdicts that change with other
seeds."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The steps to judge, original and corrupted."""

    places: list[Place]
    good: frozenset[str]
    """Ids of the places whose step is good: by its label, or unknown if it has none."""
    corrupted: Mapping[str, Mapping[str, Trajectory]]
    """By corruption and place, if it applies; the corrupted step is the last."""


def draw(
    action_marker: str,
    trajectories: Sequence[Trajectory],
    labels: Mapping[str, Sequence[int]],
    steps_per_episode: int,
    seed: int,
) -> Drawn:
    """Draws at most this many steps of every episode, the same for the same seed, and corrupts
    them. `labels`: of the steps [steps] by trajectory, if known."""
    places: list[Place] = []
    good: set[str] = set()
    for trajectory in trajectories:
        rng = np.random.default_rng(derive(seed, "steps", trajectory.id))
        chosen = rng.permutation(len(trajectory.steps))[:steps_per_episode]
        for index in sorted(int(i) for i in chosen):
            place = Place(trajectory, index, trajectories, action_marker, seed)
            places.append(place)
            if trajectory.id not in labels or labels[trajectory.id][index] == 1:
                good.add(place.id)
    corrupted = {
        name: {
            place.id: place.ending(step)
            for place in places
            if place.id in good and (step := corrupt(place)) is not None
        }
        for name, corrupt in CORRUPTIONS.items()
    }
    return Drawn(places, frozenset(good), corrupted)


def evaluate(
    judge: LLMJudge, drawn: Drawn, seed: int, name: str, progress: Progress
) -> dict[str, Counts]:
    """Returns one judge's counts by episode and measure: the number that noticed (turned, obeyed),
    and the total. `name`: of the phase in the progress bar."""
    places = {place.id: place for place in drawn.places}
    count = sum(len(episodes) for episodes in drawn.corrupted.values())
    count += (2 + len(PLEAS)) * len(places)
    with progress.phase(name, count * judge.samples, "judgements") as advance:

        def verdicts(asked: Mapping[str, Trajectory], seed: int) -> dict[str, int]:
            answers = judge.judge_last(list(asked.values()), seed, advance)
            return {
                place: int(np.sign(sum(judgement.score for judgement in judgements)))
                for place, judgements in zip(asked, answers, strict=True)
            }

        whole = {id: place.ending() for id, place in places.items()}
        first = verdicts(whole, seed)
        repeat = derive(seed, "again")
        again = verdicts(whole, repeat)
        decided = [id for id in places if first[id]]
        pleaded = {
            measure: verdicts(
                {id: places[id].ending(plead(places[id], -first[id])) for id in decided}, repeat
            )
            for measure, plead in PLEAS.items()
        }
        approved = drawn.good & {id for id in places if first[id] == 1}
        answers = {UNCHANGED: {id: again[id] for id in places if id in approved}}
        for measure, asked in drawn.corrupted.items():
            verdict = verdicts(asked, repeat)
            answers[measure] = {id: verdict[id] for id in verdict if id in approved}
    hits = [(measure, id, said == -1) for measure, of in answers.items() for id, said in of.items()]
    hits += [(measure, id, of[id] == -first[id]) for measure, of in pleaded.items() for id in of]
    hits += [(TURNED, id, again[id] == -first[id]) for id in decided]
    return _by_episode((places[id].trajectory.id, measure, hit) for measure, id, hit in hits)


def _by_episode(answers: Iterable[tuple[str, str, bool]]) -> dict[str, Counts]:
    counts: defaultdict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for episode, measure, hit in answers:
        hits, total = counts[episode].get(measure, (0, 0))
        counts[episode][measure] = (hits + hit, total + 1)
    return dict(counts)
