"""The reward of an episode, from a function as TRL takes it, from the environment, or from both."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlanything.domains.base import DomainError
from rlanything.records import Message, Messages
from rlanything_gyms.tools.methods import settled
from rlanything_gyms.winning import BadReward, reward_of

RewardFunction = Callable[..., Any]
_ABOUT_BATCHES = ("prompt", "completion", "completion_ids")
"""Columns that TRL does not hand to reward functions."""


@dataclass(frozen=True, slots=True)
class Played:
    """An episode to be scored."""

    row: Mapping[str, Any]
    opening: Messages
    rest: Messages
    """Answers of the policy and results of its calls."""
    environment: Any
    """The instance of the class; None without one."""
    servers: Any
    """The MCP sessions; None without any."""

    def arguments(self) -> dict[str, list[Any]]:
        """Returns the arguments of a reward function, each a list with one member: TRL scores
        batches, and this is a batch of one."""
        columns = {name: [self.row[name]] for name in self.row if name not in _ABOUT_BATCHES}
        own = {"environments": self.environment, "servers": self.servers}
        return {
            **columns,
            "prompts": [plain(self.opening)],
            "completions": [plain(self.rest)],
            **{name: [value] for name, value in own.items() if value is not None},
        }


def check_reward(example: Played, function: RewardFunction | None) -> None:
    """Raises `DomainError` if there is no reward, or if the function has an argument that no
    episode has."""
    if function is None:
        if not hasattr(example.environment, "get_reward"):
            raise DomainError(
                "there is no reward: name a function, reward=module:function, or give the "
                "environment a method get_reward()"
            )
        return
    given = example.arguments()
    try:
        inspect.signature(function).bind(**given)
    except TypeError as fault:
        raise DomainError(
            f"reward cannot be called ({fault}): it gets {', '.join(given)}, each a list with one "
            "member; take the others as **kwargs"
        ) from None
    except ValueError:  # a function of C code has no signature
        return


def reward_for(played: Played, function: RewardFunction | None) -> float:
    """Returns the sum of the function's reward and that of the environment's `get_reward`, as in
    TRL; None from one of them counts as none. Raises `BadReward`."""
    rewards: list[Any] = []
    if function is not None:
        given = settled(function(**played.arguments()))
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 1:
            raise BadReward(
                f"reward returned {given!r:.80}: return a list with one number for each episode"
            )
        rewards += given
    if hasattr(played.environment, "get_reward"):
        rewards.append(settled(played.environment.get_reward()))
    numbers = [reward_of(reward) for reward in rewards if reward is not None]
    if not numbers:
        raise BadReward("its reward is None: return a number for every episode")
    return sum(numbers)


def plain(messages: Messages) -> list[dict[str, Any]]:
    """Returns messages as the dictionaries that reward functions of TRL get."""
    return [_plain(message) for message in messages]


def _plain(message: Message) -> dict[str, Any]:
    given: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.name:
        given["name"] = message.name
    if message.thought:
        given["reasoning_content"] = message.thought
    if message.calls:
        given["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": call.name, "arguments": json.loads(call.arguments)},
            }
            for call in message.calls
        ]
    return given
