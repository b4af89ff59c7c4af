"""The episodes of TRL's side: a `rollout_func` as a careful agent user of TRL would write it.

All episodes are generated for at once by transformers' `generate`. A row is an episode: its prompt
is the opening chat, its completion everything after it, where a mask marks what the model wrote.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from rlanything.domains.base import Domain, EpisodeError, Observation, StepResult
from rlanything.engines.base import Sampling
from rlanything.records import Completion, Step, Task
from rlanything.rollout.workers import EnvironmentPool


@dataclass(slots=True)
class EpisodeRow:
    """An episode as TRL trains it: one row."""

    task: Task
    observation: str
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    """Tokens that the model wrote, and those that it read in between."""
    written: list[int] = field(default_factory=list)
    """[completion], 1 where the model wrote a token, TRL's `env_mask`."""
    unread: list[int] = field(default_factory=list)
    """Tokens added since the model's last answer."""
    steps: list[Step] = field(default_factory=list)
    outcome: int | None = None
    """None while it goes on."""

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids


class RowsAnew:
    """Every turn computes the whole conversation: `generate` as its documentation shows it."""

    def __init__(self, network: PreTrainedModel, pad_id: int) -> None:
        self._network = network
        self._pad_id = pad_id

    def select(self, kept: Sequence[int]) -> None:
        """Does nothing: there is nothing kept."""

    def answers(self, rows: Sequence[EpisodeRow], sampling: Sampling) -> list[list[int]]:
        """Returns what the model writes next in each row, the end of its turn included."""
        ids, mask = _left_padded([row.ids for row in rows], self._pad_id)
        found = self._network.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids, attention_mask=mask, **_sampled(sampling)
        )
        assert isinstance(found, Tensor)
        return _until_end(found[:, ids.shape[1] :], _ends(self._network))


class RowsKept:
    """Keys and values are kept from turn to turn; a turn computes only what is new.

    What rows have less than the longest one is a hole that their mask leaves out."""

    def __init__(self, network: PreTrainedModel, pad_id: int) -> None:
        self._network = network
        self._pad_id = pad_id
        self._ids = self._mask = torch.zeros(0, 0, dtype=torch.long)
        self._cache = DynamicCache(config=network.config)

    def select(self, kept: Sequence[int]) -> None:
        """Forgets all rows but these."""
        chosen = torch.tensor(kept)
        self._ids, self._mask = self._ids[chosen], self._mask[chosen]
        self._cache.batch_select_indices(chosen)

    def answers(self, rows: Sequence[EpisodeRow], sampling: Sampling) -> list[list[int]]:
        """Returns what the model writes next in each row, the end of its turn included."""
        ids, mask = _left_padded([row.unread for row in rows], self._pad_id)
        if len(self._ids):
            ids, mask = torch.cat([self._ids, ids], 1), torch.cat([self._mask, mask], 1)
        found = self._network.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids, attention_mask=mask, past_key_values=self._cache, **_sampled(sampling)
        )
        assert isinstance(found, Tensor)
        written = _until_end(found[:, ids.shape[1] :], _ends(self._network))
        own = pad_sequence([torch.ones(len(each), dtype=torch.long) for each in written], True)
        # Nothing of a row that was cut off by no end is missing in the last column.
        self._ids = found[:, : ids.shape[1] + own.shape[1]]
        self._mask = torch.cat([mask, own], 1)
        return written


class TRLRollouts:
    """Plays episodes with a network; an instance is a `rollout_func`."""

    def __init__(
        self,
        network: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        domain: Domain,
        environments: EnvironmentPool,
        tasks: Mapping[str, Task],
        sampling: Sampling,
        max_steps: int,
    ) -> None:
        """`tasks`: by id, which is all that a row of TRL's data set says."""
        self._network = network
        self._tokenizer = tokenizer
        self._domain = domain
        self._environments = environments
        self._tasks = tasks
        self._sampling = sampling
        self._max_steps = max_steps
        self.keeps = True
        """Whether keys and values are kept from turn to turn."""
        self.threads = torch.get_num_threads()
        """Threads that generate."""
        self.rows: list[EpisodeRow] = []
        """The episodes of the last call."""
        self.seconds = 0.0
        """Seconds of the last call."""

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Plays an episode for each prompt, which TRL has repeated for a group."""
        del trainer
        begun, threads = time.perf_counter(), torch.get_num_threads()
        torch.set_num_threads(self.threads)
        self.rows = self.play([self._tasks[prompt] for prompt in prompts])
        torch.set_num_threads(threads)
        self.seconds = time.perf_counter() - begun
        return as_output(self.rows)

    @torch.no_grad()
    def play(self, tasks: Sequence[Task]) -> list[EpisodeRow]:
        """Returns a row for each task, all of which are played at once.

        Raises RuntimeError where an environment fails: the comparison would not be one."""
        rows = [
            self._opened(task, opened)
            for task, opened in zip(tasks, self._environments.reset(tasks), strict=True)
        ]
        ways = RowsKept if self.keeps else RowsAnew
        assert isinstance(self._tokenizer.pad_token_id, int)
        model = ways(self._network, self._tokenizer.pad_token_id)
        live = list(range(len(rows)))
        while live:
            written = model.answers([rows[i] for i in live], self._sampling)
            texts = [str(self._tokenizer.decode(w, skip_special_tokens=True)) for w in written]
            results = self._environments.step(dict(zip(live, texts, strict=True)))
            for i, ids, text in zip(live, written, texts, strict=True):
                self._advance(rows[i], ids, text, results[i])
            going = [place for place, i in enumerate(live) if rows[i].outcome is None]
            if 0 < len(going) < len(live):
                model.select(going)
            live = [live[place] for place in going]
        return rows

    def _opened(self, task: Task, opened: Observation | EpisodeError) -> EpisodeRow:
        if isinstance(opened, EpisodeError):
            raise RuntimeError(f"an episode could not be played: {opened}")
        ids = self._encoded(self._domain.policy_prompt(task, (), opened.text))
        return EpisodeRow(task, opened.text, ids, unread=ids)

    def _advance(
        self, row: EpisodeRow, ids: list[int], text: str, result: StepResult | EpisodeError
    ) -> None:
        if isinstance(result, EpisodeError):
            raise RuntimeError(f"an episode could not be played: {result}")
        seen = result.observation.text
        step = Step(row.observation, Completion.unsampled(text), result.action, result.valid, seen)
        row.steps.append(step)
        row.observation = seen
        row.completion_ids += ids
        row.written += [1] * len(ids)
        if result.outcome is not None or len(row.steps) == self._max_steps:
            row.outcome = result.outcome or -1
            return
        turn = self._domain.policy_prompt(row.task, row.steps, seen)[-1:]
        end = [] if ids[-1] in _ends(self._network) else [_ends(self._network)[0]]
        row.unread = end + self._encoded(turn)
        row.completion_ids += row.unread
        row.written += [0] * len(row.unread)

    def _encoded(self, messages: Sequence[Any]) -> list[int]:
        """Returns the tokens of messages, and of the beginning of an answer to them."""
        chat = [{"role": message.role, "content": message.content} for message in messages]
        text = self._tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        return list(self._tokenizer.encode(str(text), add_special_tokens=False))


def as_output(rows: Sequence[EpisodeRow]) -> dict[str, Any]:
    """Returns what TRL takes from a `rollout_func`; `won` goes on to the reward function."""
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion_ids for row in rows],
        # TRL reads log-probs of its vLLM only, so none need be computed here.
        "logprobs": None,
        "env_mask": [row.written for row in rows],
        "won": [float(row.outcome or -1) for row in rows],
    }


def _sampled(sampling: Sampling) -> dict[str, Any]:
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_k": 0,
        "top_p": 1.0,
        "max_new_tokens": sampling.max_tokens,
    }


def _ends(network: PreTrainedModel) -> list[int]:
    assert network.generation_config is not None
    listed = network.generation_config.eos_token_id
    return listed if isinstance(listed, list) else [listed]


def _left_padded(sequences: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Returns ids [rows, longest], and a mask that is 0 on padding."""
    ids = [torch.tensor(sequence) for sequence in sequences]
    masks = [torch.ones_like(each) for each in ids]
    return (
        pad_sequence(ids, True, pad_id, padding_side="left"),
        pad_sequence(masks, True, 0, padding_side="left"),
    )


def _until_end(written: Tensor, ends: Sequence[int]) -> list[list[int]]:
    """Returns the tokens of every row up to its first end."""
    answers: list[list[int]] = []
    for row in written.tolist():
        end = next((i for i, token in enumerate(row) if token in ends), len(row) - 1)
        answers.append(row[: end + 1])
    return answers
