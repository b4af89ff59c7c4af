"""Web episodes: recorded once, each step with its screenshot, and then shown to a policy again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rlanything.domains.base import Episode, Image, Observation
from rlanything.records import Completion, Sample, Trajectory
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive
from rlanything_miniwob.domain import MiniWob
from rlanything_miniwob.environment import EpisodeSpec, open_episode
from rlanything_miniwob.experts import right_actions
from rlanything_miniwob.tasks import make_task
from rlanything_nano.teaching import Demonstrator

PAGES = ("click-checkboxes", "enter-password", "login-user")
"""Pages that take several steps."""
EXPERT = 0.85
"""Share of the steps that are the expert's: of four steps all are in half of the episodes, as where
tasks are neither too easy nor too hard."""


class _Clicker(Demonstrator):
    """Mostly does what the expert does, and otherwise clicks on any element."""

    def answer(self, episode: Episode, rng: random.Random) -> str:
        screen = episode.observation.text
        right = right_actions(episode.task, screen, episode.steps)
        if right and rng.random() < 1 - self._slip:
            return f"> {right[0]}"
        return f"> click [{rng.randint(1, len(screen.splitlines()))}]"


def record(
    pages: Sequence[str], rollouts: int, max_steps: int, seed: int, images: Path
) -> list[Trajectory]:
    """Plays rollouts of a task of each page in a browser; keeps the screenshots in a folder."""
    domain = MiniWob(observe="both")
    specs = [EpisodeSpec(page, derive(seed, page) % 2**31) for page in pages]
    opened = [open_episode(domain.browser, "benchmark", spec)[1].utterance for spec in specs]
    tasks = [make_task(spec.page, spec, said) for spec, said in zip(specs, opened, strict=True)]
    attempts = [
        RolloutRequest(f"{task.id}/{number}", task, derive(seed, task.id, number))
        for task in tasks
        for number in range(rollouts)
    ]
    with EnvironmentPool(domain, {}, 0, 60.0, images) as pool:
        played = rollout(_Clicker(1 - EXPERT), pool, attempts, max_steps, rollouts)
    domain.browser.close()
    assert not played.failures, played.failures
    return list(played.trajectories)


def answered(
    policy: LanguagePolicy, trajectories: Sequence[Trajectory], images: Path
) -> list[Sample]:
    """Asks a policy at every step of recorded episodes, as in lockstep. Returns its answers, with
    random advantages.

    Episodes go on as they were recorded, whatever it says."""
    samples: list[Sample] = []
    for index in range(max(len(each.steps) for each in trajectories)):
        going = [each for each in trajectories if len(each.steps) > index]
        episodes = [_before(each, index, images) for each in going]
        seeds = [derive(0, each.id, index) for each in going]
        for each, completion in zip(going, policy.respond(episodes, seeds), strict=True):
            samples.append(_sample(f"{each.id}/{index}", completion))
    policy.release_cache()
    return samples


def judged(judge: LLMJudge, trajectories: Sequence[Trajectory]) -> list[Sample]:
    """Returns a judge's answers about every step of recorded episodes, with random advantages."""
    return [
        _sample(f"{each.trajectory.id}/{index}/{number}", judgement.completion)
        for each in judge.judge(trajectories, 0)
        for index, judgements in enumerate(each.judgements)
        for number, judgement in enumerate(judgements)
    ]


def _sample(source: str, completion: Completion) -> Sample:
    return Sample(source, completion, np.random.default_rng(derive(1, source)).normal())


def _before(played: Trajectory, index: int, images: Path) -> Episode:
    """Returns an episode as the policy sees it before a step."""
    step = played.steps[index]
    assert step.image is not None
    seen = Observation(step.observation, image=Image((images / step.image).read_bytes()))
    return Episode(played.id, played.task, seen, list(played.steps[:index]))
