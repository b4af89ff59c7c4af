"""Synthetic, seeded episodes of the paper's size, with texts such as models write."""

from __future__ import annotations

import hashlib
import random
import re
from collections import defaultdict
from itertools import pairwise
from pydoc_data.topics import topics

import numpy as np

from rlanything.records import Completion, JudgedTrajectory, Judgement, Step, Task, Trajectory

TASKS, EPISODES, STEPS, JUDGEMENTS = 16, 8, 40, 3
VOCABULARY, END = 151_643, 151_645
PROSE = 0.4
"""Share of sentences that are prose; the others fill the frames below."""

PLACES = (
    *("cabinet", "countertop", "drawer", "fridge", "microwave", "sinkbasin", "stoveburner"),
    *("shelf", "desk", "sidetable", "garbagecan", "diningtable", "coffeemachine", "toaster"),
    *("bed", "dresser", "armchair", "safe"),
)
THINGS = (
    *("mug", "apple", "knife", "fork", "spoon", "plate", "bowl", "pan", "pot", "kettle", "tomato"),
    *("potato", "lettuce", "egg", "bread", "cup", "soapbar", "cloth", "sponge", "book", "pen"),
    *("pencil", "cellphone", "creditcard", "keychain", "vase", "candle", "statue", "laptop"),
    *("newspaper", "watch", "pillow", "spatula", "saltshaker", "winebottle", "glassbottle"),
)
FRAMES = """I need to find {a} first, and it is most likely on {x} or {y}.
The last action moved the agent to {x}, which is where {a} was seen before.
So far I have looked at {x}, {y} and {z} without finding {a}.
Since {x} is closed, I should open it before I can see what is inside.
The task asks to put {target} in {goal}, so the next step is to go there.
This step brings the agent no closer to the goal, because {x} was already checked.
The agent is carrying {a}, which is not what the task asks for.
The observation says that nothing happens, so the action was not possible here.
Going to {x} is reasonable: {a} is often found there in a household.
However, the agent has not yet cleaned {target}, which the task requires.
The agent should take {target} from {x} now that it is visible.
Wait, {a} is on {x}, not on {y}, as the earlier observation showed.
Let me think about which receptacles are left: {x}, {y}, {z}.
On the whole the step is useful, as it rules out {x}.
Opening {x} reveals {a} and {b}, neither of which is needed.
I have {target} in my hands, and {goal} is the place where it has to go.
The remaining budget is small, so it is better to try {x} directly.
A more efficient plan would have been to search {y} before {x}.""".splitlines()


class Prose:
    """English out of a chain of word pairs, learnt from the documentation that Python ships."""

    def __init__(self) -> None:
        words = re.findall(r"[A-Za-z][a-z']*[,.]?", " ".join(topics.values()))
        self._next: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for before, after in zip(pairwise(words), words[2:], strict=False):
            self._next[before].append(after)
        self._starts = sorted(pair for pair in self._next if pair[0][0].isupper())

    def sentence(self, rng: random.Random) -> str:
        one, two = rng.choice(self._starts)
        words = [one, two]
        for _ in range(rng.randint(6, 22)):
            if (one, two) not in self._next:
                break
            one, two = two, rng.choice(self._next[one, two])
            words.append(two)
        return " ".join(words).rstrip(".,") + "."


class Household:
    """A game with its own places and things, and what is said about it."""

    def __init__(self, rng: random.Random, prose: Prose, share: float) -> None:
        self._rng, self._prose, self._share = rng, prose, share
        kinds = rng.sample(PLACES, 10)
        self._places = [f"{kind} {i}" for kind in kinds for i in range(1, rng.randint(2, 6))]
        kinds = rng.sample(THINGS, 18)
        self._things = [f"{kind} {i}" for kind in kinds for i in range(1, rng.randint(2, 4))]
        self._target, self._goal = rng.choice(self._things), rng.choice(self._places)

    def action(self) -> str:
        return f"go to {self._rng.choice(self._places)}"

    def observation(self) -> str:
        """Returns what lies here, what is carried and what may be done."""
        rng, here = self._rng, self._rng.choice(self._places)
        seen = rng.sample(self._things, rng.randint(1, 4))
        count = min(len(self._places), rng.randint(8, 24))
        actions = [f"go to {place}" for place in rng.sample(self._places, count)]
        actions += [f"take {thing} from {here}" for thing in seen]
        carried = rng.choice([*self._things[:6], "nothing"])
        return (
            f"You arrive at {here}. On the {here}, you see a {', a '.join(seen)}. "
            f"You are carrying: {carried}.\nAvailable actions: {', '.join(actions)}, look."
        )

    def reasoning(self, shortest: int, longest: int) -> str:
        """Sentences, until there are as many characters as were drawn."""
        rng, wanted, text = self._rng, self._rng.randint(shortest, longest), ""
        while len(text) < wanted:
            text += self._prose.sentence(rng) if rng.random() < self._share else self._framed()
            text += " "
        return text

    def _framed(self) -> str:
        a, b = self._rng.choices(self._things, k=2)
        x, y, z = self._rng.choices(self._places, k=3)
        frame = self._rng.choice(FRAMES)
        return frame.format(a=a, b=b, x=x, y=y, z=z, target=self._target, goal=self._goal)


_PIECE = re.compile(r" ?[A-Za-z]{1,8}|\d|\s+| ?[^\sA-Za-z\d]{1,3}")
_IDS: dict[str, int] = {}


def token_ids(text: str) -> tuple[int, ...]:
    """Words of up to eight letters, digits and signs, scattered over a vocabulary of Qwen's size;
    then the end of the turn."""
    ids = []
    for piece in _PIECE.findall(text):
        if piece not in _IDS:
            digest = hashlib.blake2b(piece.encode(), digest_size=4).digest()
            _IDS[piece] = int.from_bytes(digest, "little") % VOCABULARY
        ids.append(_IDS[piece])
    return (*ids, END)


def logprobs(count: int, rng: np.random.Generator) -> np.ndarray:
    """As a log-softmax computes them: the likeliest token's is minus the log of a sum just above 1.

    Half of the tokens are all but certain and a fifth are open, as in the reasoning of trained
    models (arXiv 2506.01939: a minority of tokens carries the entropy): the odds against the
    likeliest are log-normal, their median 0.0013, their 80th percentile 0.5."""
    odds = 10 ** np.minimum(rng.normal(-2.9, 3.1, count), 1.0)
    likeliest = rng.random(count) < 1 / (1 + odds)
    behind = np.where(likeliest, 0.0, -rng.exponential(2.0, count)).astype("<f4")
    return behind - np.log((1 + odds).astype("<f4"))


def episodes(seed: int, share: float = PROSE) -> list[JudgedTrajectory]:
    """Returns the episodes of one iteration, each named by its number."""
    prose = Prose()
    return [_episode(seed, number, prose, share) for number in range(TASKS * EPISODES)]


def _episode(seed: int, number: int, prose: Prose, share: float) -> JudgedTrajectory:
    rng, numbers = random.Random(f"{seed}/{number}"), np.random.default_rng([seed, number])
    game = Household(rng, prose, share)
    prompt = tuple(numbers.integers(0, VOCABULARY, 600 + 150 * STEPS).tolist())
    seen = [game.observation() for _ in range(STEPS + 1)]
    steps, judgements = [], []
    for i, (before, after) in enumerate(pairwise(seen)):
        action, length = game.action(), 600 + 150 * i
        text = f"{game.reasoning(330, 700)}\n> {action}"
        said = _completion(text, prompt[:length], numbers)
        steps.append(Step(before, said, action, rng.random() < 0.9, after))
        scores = rng.choices((1, -1), k=JUDGEMENTS)
        texts = [f"{game.reasoning(560, 900)}\\boxed{{{score}}}" for score in scores]
        asked = prompt[1:length]
        answers = [_completion(text, asked, numbers) for text in texts]
        judgements.append(tuple(map(Judgement, answers, scores)))
    trajectory = Trajectory(str(number), Task("", ""), tuple(steps), rng.choice((1, -1)))
    return JudgedTrajectory(trajectory, tuple(judgements))


def _completion(text: str, prompt: tuple[int, ...], rng: np.random.Generator) -> Completion:
    ids = token_ids(text)
    values = tuple(logprobs(len(ids), rng).tolist())
    return Completion(prompt, ids, values, ((),) * len(ids), "stop", text)
