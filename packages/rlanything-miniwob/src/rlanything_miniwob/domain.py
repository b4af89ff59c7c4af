"""The MiniWoB++ domain: web pages as text or screenshots, and tasks made of a page and a seed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from rlanything.domains.base import (
    Capabilities,
    DomainError,
    DomainOptions,
    EpisodeError,
    File,
    Finding,
    InvalidTask,
    RewriteRequest,
)
from rlanything.domains.screens import Observed, ScreenDomain
from rlanything.records import (
    Completion,
    Messages,
    Step,
    Task,
)
from rlanything_miniwob.actions import ACTION_MARKER, USAGE, USAGE_BY_SIGHT
from rlanything_miniwob.browser import HEIGHT, WIDTH, Browser
from rlanything_miniwob.environment import MiniWobEnvironment, open_episode
from rlanything_miniwob.experts import right_actions
from rlanything_miniwob.pages import Page
from rlanything_miniwob.rewriting import family, setting_in
from rlanything_miniwob.sight import replayed
from rlanything_miniwob.tasks import (
    SPLITS,
    Splits,
    changed_spec,
    chosen_splits,
    episode_specs,
    make_task,
    page_of,
    spec_of_task,
)

if TYPE_CHECKING:
    from rlanything_nano.teaching import StepTeacher

ADAPTER = frozenset({"page", "pages", "numbers"})
"""Placeholders that exist only in its adapter's prompt."""
LONGEST_PLAN = 12
"""Number of actions after which the expert counts as lost."""


class MiniWob(ScreenDomain):
    """Web pages of the MiniWoB++ package, as text, as screenshots, or both."""

    class Options(DomainOptions):
        observe: Observed = "text"
        """Input of the models: a page's text, a screenshot, or both."""
        screenshots: Annotated[int, Field(ge=0, le=4)] = 0
        """Scale of screenshots, in pixels per pixel of the page; 0: no screenshots, or 1 if the
        models see them."""
        prompts: File | None = None
        """Folder whose .txt files replace the shipped prompts."""
        pages: Sequence[Any] | None = None
        """Pages that `train`, `tune` and `in_domain` share."""
        held_out: Sequence[Any] | None = None
        """Pages of `ood`."""

    action_marker = ACTION_MARKER

    splits: Splits = SPLITS
    """The pages of every split."""
    pointer_size: ClassVar[tuple[int, int]] = (WIDTH, HEIGHT)
    """Width and height that coordinates of actions count in."""

    def __init__(self, **options: Any) -> None:
        """Raises `DomainError` for options it cannot use."""
        chosen = self.Options.read(options)
        super().__init__("rlanything_miniwob", ADAPTER, chosen.prompts, chosen.observe)
        self.splits = chosen_splits(self.splits, chosen.pages, chosen.held_out)
        self._screenshots = chosen.screenshots or int(self._shows_images)

    @staticmethod
    def checks() -> list[Finding]:
        """Starts the browser, which only this domain needs."""
        browser = Browser()
        try:
            return [Finding("browser", "ok", f"Chromium {browser.version()} for web tasks")]
        except DomainError as error:
            return [Finding("browser", "missing", f"web tasks are not available: {error}")]
        finally:
            browser.close()

    @property
    def capabilities(self) -> Capabilities:
        size = (WIDTH * self._screenshots, HEIGHT * self._screenshots)
        return replace(super().capabilities, screen_size=size)

    @functools.cached_property
    def browser(self) -> Browser:
        """The browser of this process. Using it raises `DomainError` if there is none."""
        return Browser(self._screenshots or 1)

    def tasks(self, split: str, count: int, seed: int) -> list[Task]:
        numbered = list(enumerate(episode_specs(split, count, seed, self.splits)))
        tasks: dict[int, Task] = {}
        # In the order of pages: the browser opens every page once, for all its tasks.
        for number, spec in sorted(numbered, key=lambda pair: pair[1].page):
            task_id = f"{split}-{spec.page}-{number}-{spec.seed}"
            episode, state = open_episode(self.browser, task_id, spec)
            episode.ended = True
            tasks[number] = make_task(task_id, spec, state.utterance)
        return [tasks[number] for number, _ in numbered]

    def environment(self) -> MiniWobEnvironment:
        return MiniWobEnvironment(self.browser, self._screenshots > 0, self._shows_text)

    @staticmethod
    def nano_teacher() -> StepTeacher:
        from rlanything_miniwob.teacher import MiniWobTeacher

        return MiniWobTeacher()

    def policy_prompt(self, task: Task, steps: Sequence[Step], observation: str) -> Messages:
        usage = USAGE if self._shows_text else USAGE_BY_SIGHT
        return self._ask_policy(task, steps, observation, usage)

    def adapter_prompt(self, request: RewriteRequest) -> Messages:
        pages = self._in_place_of(page_of(request.root))
        numbers = {
            knob.name: f"{knob.name} {knob.least} to {knob.most}"
            for member in pages
            for knob in member.knobs
        }
        return self._ask_adapter(
            request,
            page=pages[0].name,
            pages=", ".join(each.name for each in pages),
            numbers=", ".join(numbers.values()) or "none",
        )

    def parse_candidate(self, root: Task, task_id: str, completion: str) -> Task:
        """Returns a task with another page, other numbers or a hint; it has been loaded, and solved
        by the expert."""
        setting = setting_in(completion, self._in_place_of(page_of(root)))
        spec = changed_spec(root, setting)
        if (spec, setting.hint) == (spec_of_task(root), root.data["hint"]):
            raise InvalidTask("nothing is changed")
        try:
            episode, state = open_episode(self.browser, task_id, spec)
            episode.ended = True
            task = make_task(task_id, spec, state.utterance, setting.hint)
            self._solve(task)
        except EpisodeError as fault:
            raise InvalidTask(fault.reason, "unsolvable") from fault
        return task

    def _in_place_of(self, page: Page) -> tuple[Page, ...]:
        """Returns the pages that may replace this one, itself first; none of them is held out."""
        held_out = {each.name for each in self.splits["ood"]} - {page.name}
        return tuple(each for each in family(page) if each.name not in held_out)

    def oracle(self, task: Task, steps: Sequence[Step]) -> list[int] | None:
        """Returns +1 for a step that an expert might have taken on that screen, regardless of
        earlier steps; None if an episode of screenshots cannot be replayed."""
        try:
            read = steps if self._shows_text else replayed(self.browser, task, steps).steps
        except EpisodeError:
            return None
        return [
            1
            if step.valid and step.action in right_actions(task, step.observation, read[:i])
            else -1
            for i, step in enumerate(read)
        ]

    def expert(self, task: Task, steps: Sequence[Step]) -> str | None:
        action = self._right_action(task, steps)
        return f"{ACTION_MARKER} {action}" if action else None

    def _right_action(self, task: Task, steps: Sequence[Step]) -> str | None:
        """Returns the expert's action after some steps, or None if it is lost."""
        if not self._shows_text:
            replay = replayed(self.browser, task, steps)
            return replay.pointed(replay.right(task))
        if steps:
            screen = steps[-1].next_observation
        else:
            with closing(MiniWobEnvironment(self.browser)) as environment:
                screen = environment.reset(task).text
        right = right_actions(task, screen, steps)
        return right[0] if right else None

    def _solve(self, task: Task) -> None:
        """Raises `InvalidTask` if the expert does not solve the task, and `EpisodeError`."""
        with closing(MiniWobEnvironment(self.browser)) as environment:
            screen = environment.reset(task)
            steps = list[Step]()
            while len(steps) < LONGEST_PLAN and (right := right_actions(task, screen.text, steps)):
                response = Completion.unsampled(f"{ACTION_MARKER} {right[0]}")
                result = environment.step(response.text)
                if result.outcome == 1:
                    return
                if result.outcome is not None:
                    break
                after = result.observation
                steps.append(Step(screen.text, response, result.action, result.valid, after.text))
                screen = after
        raise InvalidTask("the expert cannot solve it", "unsolvable")
