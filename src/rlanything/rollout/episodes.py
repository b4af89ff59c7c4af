"""Episodes: an agent answers, the environments react, until every episode has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

from rlanything.domains.base import Episode, EpisodeError, Observation, StepResult
from rlanything.domains.requests import Reply, RequestsRefused
from rlanything.records import Completion, Step, Task, Trajectory
from rlanything.rollout.episode_host import Response
from rlanything.rollout.workers import EnvironmentPool
from rlanything.seeds import derive

CRASHED = Observation("The environment failed at this response: the episode is lost.")


class Agent(Protocol):
    """An agent that acts in episodes: the policy, or a baseline."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        """Returns one response per episode. Raises `RequestsRefused` if a program that acts in an
        episode sent a request that cannot be answered."""
        ...

    def release_cache(self) -> None:
        """Drops what is cached for the episodes: all have ended."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedAgent:
    """Repeats recorded responses; where a record ends, another agent continues its episode."""

    recorded: Mapping[str, Sequence[Completion]]
    """Responses by episode id."""
    then: Agent | None = None
    """None if no episode outlasts its record."""

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        left = [self.recorded[each.id][len(each.steps) :] for each in episodes]
        # A request to count tokens has no response on record.
        requests = [each.observation.request for each in episodes]
        new = [i for i, r in enumerate(requests) if not left[i] or (r and r.count_only)]
        given = {i: responses[0] for i, responses in enumerate(left) if responses}
        if new and self.then:
            try:
                answers = self.then.respond([episodes[i] for i in new], [seeds[i] for i in new])
            except RequestsRefused as refused:
                raise refused.within(new) from None
            given |= zip(new, answers, strict=True)
        return [given[i] for i in range(len(episodes))]

    def release_cache(self) -> None:
        if self.then is not None:
            self.then.release_cache()


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """An episode to be played."""

    id: str
    task: Task
    seed: int


@dataclass(frozen=True, slots=True)
class Rollouts:
    """The results of the attempts."""

    trajectories: tuple[Trajectory, ...]
    """Played episodes in the order of the attempts."""
    failures: tuple[EpisodeError, ...]
    """Errors of episodes that could not be played to their end (infrastructure, not the policy);
    `masked` tells those that had begun."""
    unplayable: tuple[Task, ...]
    """The task of each failure."""
    crashes: tuple[EpisodeError, ...] = ()
    """Errors that a response caused; these episodes are losses among the trajectories."""


def faults(failures: Sequence[EpisodeError], crashes: Sequence[EpisodeError]) -> list[str]:
    """Returns a line for the episodes that could not be played, one for those masked and one for
    those lost to an error at a response, each with its count and commonest reason. Empty if there
    were none."""
    lines: list[str] = []
    for errors, became in (
        ([error for error in failures if not error.masked], "could not be played"),
        (
            [error for error in failures if error.masked],
            "masked, because the environment failed and not the policy",
        ),
        (crashes, "lost where the environment failed at a response"),
    ):
        if errors:
            [(reason, count)] = Counter(error.reason for error in errors).most_common(1)
            of_them = "" if count == len(errors) else f"{count} of them: "
            episodes = "episode" if len(errors) == 1 else "episodes"
            lines.append(f"{len(errors)} {episodes} {became}: {of_them}{reason:.500}")
    return lines


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended."""

    result: Trajectory | EpisodeError
    crash: EpisodeError | None = None
    """The error that a response caused."""


def rollout(
    agent: Agent,
    pool: EnvironmentPool,
    attempts: Sequence[RolloutRequest],
    max_steps: int,
    parallel_episodes: int,
    on_episodes: Callable[[int], None] | None = None,
    lockstep: bool = True,
    on_trajectories: Callable[[Sequence[Trajectory]], None] | None = None,
) -> Rollouts:
    """Plays all attempts, `parallel_episodes` at a time; an episode that reaches `max_steps` has
    failed.

    In lockstep the agent answers all episodes in one call once every environment has answered, and
    the next chunk begins once all have ended. Otherwise the agent answers whichever episodes are
    ready, and a new one begins whenever one ends. Only which episodes share a call then depends on
    timing; seeds and order do not.

    `on_episodes` is called with the number of attempts that have just ended, `on_trajectories` with
    the episodes that were played. An environment's failure costs only its own episode."""
    ended: dict[int, AttemptEnd] = {}
    chunks = _chunks(attempts, parallel_episodes)
    for chunk in chunks if lockstep else [[*chain.from_iterable(chunks)]]:
        playing = LiveEpisodes(agent, pool, max_steps, parallel_episodes, lockstep)
        playing.begin([attempts[i] for i in chunk])
        while playing.under_way:
            over = playing.turn()
            ended |= {chunk[i]: each for i, each in over.items()}
            if on_episodes is not None and over:
                on_episodes(len(over))
            played = [end.result for end in over.values() if isinstance(end.result, Trajectory)]
            if on_trajectories is not None and played:
                on_trajectories(played)
    agent.release_cache()
    return results(attempts, [ended[i] for i in range(len(attempts))])


def results(attempts: Sequence[RolloutRequest], ended: Sequence[AttemptEnd]) -> Rollouts:
    """Returns how these attempts ended, sorted."""
    trajectories: list[Trajectory] = []
    failures: list[EpisodeError] = []
    unplayable: list[Task] = []
    for attempt, end in zip(attempts, ended, strict=True):
        if isinstance(end.result, EpisodeError):
            failures.append(end.result)
            unplayable.append(attempt.task)
        else:
            trajectories.append(end.result)
    crashes = tuple(end.crash for end in ended if end.crash is not None)
    return Rollouts(tuple(trajectories), tuple(failures), tuple(unplayable), crashes)


def _chunks(attempts: Sequence[RolloutRequest], size: int) -> Iterator[list[int]]:
    """Yields indices of the attempts that are played together, `size` at a time: the first of every
    task, then the second ones and so on, because attempts of one task may need the same browser
    page. Within a chunk the attempts of a task are adjacent: workers play them in blocks."""
    turns, seen = list[tuple[int, int]](), Counter[str]()
    for i, attempt in enumerate(attempts):
        turns.append((seen[attempt.task.id], i))
        seen[attempt.task.id] += 1
    spread = [i for _, i in sorted(turns)]
    for start in range(0, len(spread), size):
        yield sorted(spread[start : start + size])


@dataclass(slots=True)
class LiveEpisodes:
    """Episodes under way; the pool plays nothing else meanwhile. For the settings see `rollout`."""

    agent: Agent
    pool: EnvironmentPool
    max_steps: int
    parallel_episodes: int
    lockstep: bool
    _attempts: dict[int, RolloutRequest] = field(default_factory=dict)
    _live: dict[int, Episode] = field(default_factory=dict)
    _said: dict[int, Completion | str] = field(default_factory=dict)

    @property
    def under_way(self) -> int:
        """Number of attempts that have not ended."""
        return len(self._attempts)

    def begin(self, attempts: Sequence[RolloutRequest]) -> range:
        """Begins more attempts and returns their numbers, which no attempt under way has."""
        tasks = [attempt.task for attempt in attempts]
        if self._attempts:
            numbers = self.pool.add(tasks)
        else:
            numbers = self.pool.begin(tasks, self.parallel_episodes)
        self._attempts |= zip(numbers, attempts, strict=True)
        return numbers

    def turn(self) -> dict[int, AttemptEnd]:
        """Waits for environments, and has the agent answer those that have responded. Returns the
        attempts that ended meanwhile."""
        ended: dict[int, AttemptEnd] = {}
        answers = self.pool.collect() if self.lockstep else self.pool.gather()
        for i, answer in answers.items():
            if isinstance(answer, Observation):
                self._live[i] = Episode(self._attempts[i].id, self._attempts[i].task, answer)
            elif i not in self._live:
                assert isinstance(answer, EpisodeError)
                ended[i] = AttemptEnd(answer)
            elif over := _advance(self._live[i], self._said[i], answer, self.max_steps):
                ended[i] = over
                self.pool.forget(i)
        asking = [i for i in answers if i not in ended]
        seeds = [derive(self._attempts[i].seed, len(self._live[i].steps)) for i in asking]
        if asking:
            said = _ask(self.agent, [self._live[i] for i in asking], seeds)
            self._said |= zip(asking, said, strict=True)
            self.pool.post({i: _response(self._live[i], self._said[i]) for i in asking})
        for i in ended:
            for kept in (self._attempts, self._live, self._said):
                kept.pop(i, None)
        return ended


def _ask(agent: Agent, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion | str]:
    """Returns the response in each episode, or the reason why its request was refused."""
    try:
        return [*agent.respond(episodes, seeds)]
    except RequestsRefused as refused:
        reasons = refused.reasons
    asked = [i for i in range(len(episodes)) if i not in reasons]
    answers = iter(_ask(agent, [episodes[i] for i in asked], [seeds[i] for i in asked]))
    return [reasons[i] if i in reasons else next(answers) for i in range(len(episodes))]


def _response(episode: Episode, said: Completion | str) -> Response:
    request = episode.observation.request
    if isinstance(said, str):
        assert request is not None  # only requests can be refused
        return Reply(request.id, None, said)
    return said.answer if request is None else Reply(request.id, said)


def _advance(
    episode: Episode,
    said: Completion | str,
    result: StepResult | EpisodeError,
    max_steps: int,
) -> AttemptEnd | None:
    """Records a step unless its request was refused. Returns the ended episode; None: it goes
    on."""
    crash: EpisodeError | None = None
    if isinstance(result, EpisodeError):
        if not result.lost:
            masked = EpisodeError(result.task_id, result.reason, result.deadly, masked=True)
            return AttemptEnd(masked)
        crash, result = result, StepResult(CRASHED, None, valid=False, outcome=-1)
    if isinstance(said, Completion):
        episode.steps.append(_step(episode.observation, said, result))
    elif episode.steps:  # the last step's request was refused; this observation replaces it
        seen = result.observation
        episode.steps[-1] = replace(
            episode.steps[-1], next_observation=seen.text, next_image=seen.image_name
        )
    episode.observation = result.observation
    if result.outcome is None and len(episode.steps) < max_steps:
        return None
    if not episode.steps:
        return AttemptEnd(EpisodeError(episode.task.id, f"no request could be answered: {said}"))
    steps, outcome = tuple(episode.steps), -1 if result.outcome is None else result.outcome
    trajectory = Trajectory(episode.id, episode.task, steps, outcome, result.reward, result.others)
    return AttemptEnd(trajectory, crash)


def _step(seen: Observation, completion: Completion, result: StepResult) -> Step:
    return Step(
        observation=seen.text,
        completion=completion,
        action=result.action,
        valid=result.valid,
        next_observation=result.observation.text,
        image=seen.image_name,
        next_image=result.observation.image_name,
        player=seen.player,
    )
