"""The episodes of a served policy, as its journal tells them.

Everything here changes by the journal's lines alone. So a process that reads a journal knows what
the one that wrote it knew.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlanything.domains.calls import Said
from rlanything.records import Completion, Message, Messages, Step, Task, Trajectory
from rlanything_agent.asked import Asked
from rlanything_agent.conversation import PolicyAnswer, Sent, repeated
from rlanything_agent.serving.journal import Event
from rlanything_agent.serving.lines import (
    START,
    answer_line,
    answer_of,
    digest,
    digests,
    message_line,
    messages_of,
)
from rlanything_agent.threads import ENDED, action_of, shown

MOST_OPEN = 16_384
"""Largest number of episodes without an end; beyond it the oldest is forgotten."""
UNKNOWN = -1
"""Placeholder outcome of an episode that only judges score."""


@dataclass(eq=False, slots=True)
class Answered:
    """A request that was answered, while its episode lasts."""

    sent: Sent
    answers: list[PolicyAnswer]
    episode: ServedEpisode
    version: int
    """Number of updates of the weights that answered."""
    heard: bool = False
    """Whether its client received the answers."""
    receiving: int = 0
    """Number of clients to which the answers are being sent."""
    request: Mapping[str, Any] | None = None
    """The request if later ones may refer to its reply (`Asked.kept`)."""

    @property
    def abandoned(self) -> bool:
        """Whether no client is receiving the answers and none received them."""
        return not (self.heard or self.receiving)


@dataclass(eq=False, slots=True)
class ServedEpisode:
    """The requests of one episode."""

    number: int
    name: str
    teaches: bool
    """Whether all of its requests came with a key that may teach the policy."""
    seen: set[str] = field(default_factory=set)
    """Digests of all beginnings of its chats."""
    ends: list[str] = field(default_factory=list)
    """Digest of the chat after each step."""
    first: Messages = ()
    """Messages of its first request."""
    steps: list[tuple[str, Completion, Said]] = field(default_factory=list)
    """Observation and answer of each step."""
    exchanges: list[Answered] = field(default_factory=list)
    outcome: int | None = None
    """1 or -1; None: only judges score it."""
    reward: float | None = None

    @property
    def latest(self) -> Completion | None:
        """The last answer; None before the first."""
        return self.steps[-1][1] if self.steps else None

    def trajectory(self) -> Trajectory:
        """Returns the episode as judges and learners read it; its instruction is the first message
        of a user."""
        said = [message.content for message in self.first if message.role == "user"]
        task = Task(f"episode-{self.number}", said[0] if said else "")
        ends = [*(observation for observation, _, _ in self.steps[1:]), ENDED]
        steps = tuple(
            Step(observation, completion, action_of(answer), answer.readable, after)
            for (observation, completion, answer), after in zip(self.steps, ends, strict=True)
        )
        outcome = UNKNOWN if self.outcome is None else self.outcome
        return Trajectory(str(self.number), task, steps, outcome, self.reward)


@dataclass(frozen=True, slots=True)
class Update:
    """An update of the policy that the journal says is due."""

    number: int
    episodes: tuple[ServedEpisode, ...]


class Episodes:
    """All episodes that have not trained yet."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, ServedEpisode] = OrderedDict()
        self._by_name: dict[str, ServedEpisode] = {}
        self._by_end: dict[str, list[ServedEpisode]] = defaultdict(list)
        """Open episodes by the digests of their chats."""
        self._by_answer: dict[int, ServedEpisode] = {}
        """Open episodes by the numbers of their answers."""
        self._repeatable: dict[tuple[str, str], list[Answered]] = defaultdict(list)
        """Answered requests of open episodes by key and body."""
        self._by_first: dict[int, Answered] = {}
        self._begun = 0
        self.answers = 0
        """Number of answers so far."""
        self.ended: list[ServedEpisode] = []
        """Episodes that ended since the last update."""
        self.updates: list[Update] = []
        """Updates so far; those that are kept have no episodes any more."""

    def __len__(self) -> int:
        return len(self._open)

    @property
    def exchanges(self) -> list[Answered]:
        """Answered requests of open episodes, in order."""
        return [exchange for _, exchange in sorted(self._by_first.items())]

    @property
    def numbers(self) -> list[int]:
        """Numbers of the open episodes."""
        return [*self._open]

    def episode(self, number: int) -> ServedEpisode | None:
        """Returns an open episode; None: there is none with this number."""
        return self._open.get(number)

    def named(self, name: str) -> ServedEpisode | None:
        """Returns the open episode with a name; None: there is none."""
        return self._by_name.get(name)

    def answered(self, number: int) -> ServedEpisode | None:
        """Returns the open episode of an answer; None: there is none."""
        return self._by_answer.get(number)

    def earlier(self, sent: Sent) -> Answered | None:
        """Returns the exchange that a request repeats; None: it is new. See `Conversation`."""
        return repeated(sent, self._repeatable.get((sent.key, sent.body), ()))

    def event(
        self,
        asked: Asked,
        sent: Sent,
        name: str,
        teaches: bool,
        version: int,
        answers: Sequence[tuple[Said, Completion]],
    ) -> Event:
        """Returns the line of an exchange, with the episode that it belongs to: the open one of its
        `name`, or else the one whose chat it continues, or else a new one."""
        messages = asked.messages
        marks = digests(messages)
        episode = self._by_name.get(name) if name else self._continued(messages, marks)
        seen = episode.seen if episode else ()
        known = max((i for i, mark in enumerate(marks, 1) if mark in seen), default=0)
        lines: list[Any] = []
        before = episode.latest if episode else None
        for said, completion in answers:
            lines.append(answer_line(said, completion, before))
            before = completion
        begun = self._begun if episode is None else episode.number
        return {
            "kind": "answers",
            "episode": begun,
            "name": name or (episode.name if episode else self._new_name()),
            "teaches": teaches,
            "version": version,
            "body": sent.body,
            "key": sent.key,
            "first": self.answers,
            "after": marks[known - 1] if known else START,
            "new": [message_line(message) for message in messages[known:]],
            "tools": [] if known else asked.tool_names,
            "answers": lines,
            **({} if asked.kept is None else {"request": asked.kept}),
        }

    def apply(self, event: Event) -> None:
        """Takes a line of the journal. Raises KeyError, ValueError or TypeError for one that does
        not follow from those before it."""
        match event["kind"]:
            case "answers":
                self.apply_answers(event)
            case "heard":
                if exchange := self._by_first.get(event["first"]):
                    exchange.heard = True
            case "ended":
                episode = self._open[event["episode"]]
                self._close(episode)
                episode.outcome, episode.reward = event["outcome"], event["reward"]
                self.ended.append(episode)
            case "forgotten":
                self._close(self._open[event["episode"]])
            case "update":
                wanted = [*event["episodes"]]
                ended = {episode.number: episode for episode in self.ended}
                batch = tuple(ended.pop(number) for number in wanted)
                self.ended = [*ended.values()]
                self.updates.append(Update(event["number"], batch))
            case kind:
                raise ValueError(f"unknown kind {kind!r}")

    def keep(self, number: int) -> None:
        """Forgets the episodes of an update that is kept."""
        self.updates[number - 1] = Update(number, ())

    def _continued(self, messages: Messages, marks: Sequence[str]) -> ServedEpisode | None:
        """Returns the episode whose chat, with its answer, these messages continue: the longest
        such chat. If several episodes had it, the latest that nobody has continued since."""
        for i in reversed(range(len(messages) - 1)):
            same = self._by_end.get(marks[i], ()) if messages[i].role == "assistant" else ()
            if same:
                waiting = [each for each in same if each.ends[-1] == marks[i]]
                return (waiting or same)[-1]
        return None

    def _new_name(self) -> str:
        number = self._begun
        while f"episode-{number}" in self._by_name:
            number += 1
        return f"episode-{number}"

    def apply_answers(self, event: Event) -> Answered:
        """Takes the line of an exchange, and returns the exchange."""
        number = event["episode"]
        if number == self._begun:
            self._begun += 1
            episode = ServedEpisode(number, event["name"], event["teaches"])
            self._open[number] = self._by_name[episode.name] = episode
            if len(self._open) > MOST_OPEN:
                self._close(next(iter(self._open.values())))
        episode = self._open[number]
        episode.teaches &= event["teaches"]
        new = messages_of(event["new"])
        episode.first = episode.first or new
        marks = digests(new, event["after"])
        episode.seen.update(marks)
        text = shown(new, event["tools"])
        answers: list[PolicyAnswer] = []
        for line in event["answers"]:
            said, completion = answer_of(line, episode.latest)
            message = Message("assistant", said.content, calls=said.calls)
            end = digest([event["after"], *marks][-1], message)
            episode.seen.add(end)
            episode.ends.append(end)
            episode.steps.append((text, completion, said))
            if episode not in self._by_end[end]:
                self._by_end[end].append(episode)
            self._by_answer[self.answers] = episode
            answers.append(PolicyAnswer(said, completion, self.answers))
            self.answers += 1
        sent = Sent(event["body"], event["key"])
        exchange = Answered(sent, answers, episode, event["version"], request=event.get("request"))
        episode.exchanges.append(exchange)
        self._repeatable[sent.key, sent.body].append(exchange)
        self._by_first[event["first"]] = exchange
        return exchange

    def _close(self, episode: ServedEpisode) -> None:
        """Removes an episode from the open ones."""
        del self._open[episode.number]
        self._by_name.pop(episode.name, None)
        for end in set(episode.ends):
            self._by_end[end].remove(episode)
            if not self._by_end[end]:
                del self._by_end[end]
        for exchange in episode.exchanges:
            identity = exchange.sent.key, exchange.sent.body
            self._repeatable[identity].remove(exchange)
            if not self._repeatable[identity]:
                del self._repeatable[identity]
            for answer in exchange.answers:
                del self._by_answer[answer.number]
            del self._by_first[exchange.answers[0].number]
        episode.exchanges.clear()
