"""Builds the nano models of a domain whose judge scores steps: demonstrate, teach, measure, save.

The policy learns from a demonstrator that explores and slips. The judge learns from noisy oracle
labels on the policy's own rollouts, the adapter from explained failures and goals chosen by rule.
Each ends useful but imperfect. They are measured on the `tune` split, which no benchmark uses.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rlanything.config.roles import PolicyConfig
from rlanything.domains.base import Domain
from rlanything.domains.registry import load_domain
from rlanything.engines.base import Sampling
from rlanything.engines.hf.engine import embedded_engine
from rlanything.engines.hf.model import LanguageModel, load_model
from rlanything.evaluation.judge_eval import JudgeEvalSet
from rlanything.evaluation.labels import oracle_labels
from rlanything.progress import Progress
from rlanything.records import Sample, Task, Trajectory
from rlanything.roles.chat_model import LocalChatModel
from rlanything.roles.judges.llm import LLMJudge, ValueJudge
from rlanything.rollout.episodes import Agent, RolloutRequest, rollout
from rlanything.rollout.workers import EnvironmentPool
from rlanything.runs.build import build_policy
from rlanything.runs.metrics.judge import judge_metrics
from rlanything.seeds import derive
from rlanything_nano.copying import pretrain_copying
from rlanything_nano.looking import drawn_scenes, pretrain_looking, told_texts
from rlanything_nano.making import (
    ROLES,
    RoleName,
    Shape,
    measurements,
    merge_groups,
    new_model,
    save_in_bfloat16,
    student,
    teach,
)
from rlanything_nano.measuring import (
    blindfolded,
    fresh_tasks,
    measure_adapter,
    measure_policy,
)
from rlanything_nano.rehearsing import Drill, Rehearsal
from rlanything_nano.samples import SampleWriter, texts_read
from rlanything_nano.seeing import new_seeing_model
from rlanything_nano.sft import Renaming, SFTBatch, make_batches
from rlanything_nano.slips import SLIPS, TRIALS, find_slip
from rlanything_nano.teaching import (
    DrillingTeacher,
    FailureTeacher,
    SeeingTeacher,
    SeenScene,
    StepPlan,
    StepTeacher,
    ValueTeacher,
)
from rlanything_nano.tokenizer import train_tokenizer
from rlanything_nano.valuing import grades_of_states

BLANK = "on blank images"
"""Card key for results of vision models on blank images."""
EXERCISES = 16
"""Number of exercises that share the instructions at the beginning of their prompts."""
SCREENSHOTS = 1
"""Screenshots shown to a vision policy; one suffices, because the latest reflects all earlier
actions."""


class StepDomainBuilder:
    """A build of the three models of a domain whose judge scores steps."""

    def __init__(
        self, plan: StepPlan, teacher: StepTeacher, out: Path, workers: int, progress: Progress
    ) -> None:
        self._plan = plan
        self._teacher = teacher
        self._out = out
        self._progress = progress
        self._domain: Domain = load_domain(plan.domain, plan.options)
        self._images = tempfile.TemporaryDirectory(prefix="rlanything-nano-")
        folder = Path(self._images.name) if plan.sight else None
        self._folders = () if folder is None else (folder,)
        self._pool = EnvironmentPool(plan.domain, plan.options, workers, 120.0, folder)
        self._config = PolicyConfig(
            decoding=plan.decoding,
            max_tokens=plan.response_tokens,
            thought_tokens=plan.thought_tokens,
            screenshots=SCREENSHOTS,
        )

    def build(self, roles: Sequence[RoleName] = ROLES) -> dict[str, Any]:
        """Builds the models and returns the measurements. `roles`: roles to build; the others are
        read from the folder unchanged."""
        plan = self._plan
        with (
            measurements(plan, self._out, roles) as measured,
            self._images,
            self._progress.live(),
            self._pool,
        ):
            games = self._domain.tasks("train", plan.games, derive(plan.seed, "games"))
            scenes = self._scenes() if {"policy", "judge", "value"} & {*roles} else []
            if "policy" in roles:
                slip = plan.slip
                if slip is None:
                    slip = measured["slip"] = find_slip(self._demonstrated(games), self._progress)
                demonstrator = self._teacher.demonstrator(slip)
                demonstrations = self._play(
                    demonstrator, games, plan.demonstrations_per_game, "demos"
                )
                policy = self._untaught(demonstrations, scenes)
                self._teach_exercises(policy)
                writer = self._writer(policy)
                samples = [writer.demonstration(t) for t in demonstrations]
                samples += [writer.scene(scene) for scene in scenes]
                self._teach(policy, samples, "policy", scenes)
                measured["policy"] = self._measure_policy(policy)
            else:
                # The tower too: a student of it is trained by gradients through the whole model.
                policy = load_model(
                    self._out / "policy",
                    "float32",
                    images=self._folders,
                    train_vision=plan.sight,
                )
                writer = self._writer(policy)

            rollouts: list[Trajectory] = []
            if {*roles} - {"policy"}:
                rollouts = self._policy_rollouts(policy, games[: plan.judged_games])
            if "judge" in roles:
                judge = student(policy)
                judged = [*rollouts, *self._mistakes(games[: plan.judged_games])]
                self._teach(judge, self._judgements(writer, judged), "judge", scenes)
                measured["judge"] = self._diagnose(judge, self._judged_rollouts(policy))
            if "value" in roles:
                judge = student(policy)
                samples = self._valuations(writer, policy, rollouts[: 2 * plan.valued_games])
                self._teach(judge, samples, "value", scenes)
                measured["value"] = self._diagnose(judge, self._judged_rollouts(policy), ValueJudge)
            if "adapter" in roles:
                adapter = student(policy)
                failed = [t for t in rollouts[: 2 * plan.criticised_games] if t.outcome != 1]
                critics = [[writer.explanation(self._teacher, t)] for t in failed]
                explained = [sample.completion.text for group in critics for sample in group]
                samples = critics + self._proposals(writer, explained, failed)
                self._teach(adapter, samples, "adapter")
                measured["adapter"] = self._measure_adapter(adapter, explained)
        return measured

    def _scenes(self) -> list[SeenScene]:
        """Returns the screens on which policy and judge learn to look; empty without vision."""
        if not isinstance(self._teacher, SeeingTeacher):
            return []
        return drawn_scenes(self._teacher, self._domain, self._plan, self._progress)

    def _demonstrated(self, games: Sequence[Task]) -> Callable[[float], list[Trajectory]]:
        """Returns a function that plays some games with a slip rate."""
        return lambda slip: self._play(
            self._teacher.demonstrator(slip), games[:TRIALS], 1, f"demos with slip {slip}"
        )

    def _policy_rollouts(self, policy: LanguageModel, games: Sequence[Task]) -> list[Trajectory]:
        return self._play(self._agent(policy, 1.0), games, 2, "rollouts")

    def _mistakes(self, games: Sequence[Task]) -> list[Trajectory]:
        """Returns episodes with more mistakes than the policy makes, if the plan has them."""
        slip = self._plan.judged_slip
        if not slip:
            return []
        return self._play(self._teacher.demonstrator(slip), games, 1, "mistakes to judge")

    def _play(self, agent: Agent, games: Sequence[Task], times: int, name: str) -> list[Trajectory]:
        attempts = [
            RolloutRequest(f"{name}/{t.id}/{k}", t, derive(self._plan.seed, name, t.id, k))
            for t in games
            for k in range(times)
        ]
        return self._played(agent, attempts, name)

    def _played(
        self, agent: Agent, attempts: Sequence[RolloutRequest], name: str
    ) -> list[Trajectory]:
        with self._progress.phase(name, len(attempts), "episodes") as advance:
            plan = self._plan
            played = rollout(
                agent,
                self._pool,
                attempts,
                plan.max_steps,
                plan.parallel_episodes,
                advance,
                plan.lockstep,
            )
        return list(played.trajectories)

    def _untaught(
        self, demonstrations: Sequence[Trajectory], scenes: Sequence[SeenScene]
    ) -> LanguageModel:
        """Returns the model to train on demonstrations and scenes."""
        plan = self._plan
        texts = texts_read(self._domain, self._teacher, demonstrations, plan.seed)
        texts += told_texts(scenes)
        tokenizer = train_tokenizer(texts, plan.vocabulary, plan.spaces_apart, plan.sight)
        shape = Shape(plan.hidden, plan.layers, plan.heads)
        seed = derive(plan.seed, "policy")
        if plan.sight:
            policy = new_seeing_model(shape, tokenizer, seed, self._folders)
        else:
            policy = new_model(shape, tokenizer, seed)
        self._pretrain_copying(policy)
        if isinstance(self._teacher, SeeingTeacher):
            pretrain_looking(policy, self._teacher, scenes, plan, self._progress)
        return policy

    def _pretrain_copying(self, model: LanguageModel) -> None:
        plan = self._plan
        if not plan.copying_updates:
            return
        with self._progress.phase("copying", plan.copying_updates, "updates") as advance:
            loss = pretrain_copying(
                model,
                plan.copying_updates,
                plan.learning_rate,
                derive(plan.seed, "drill"),
                advance,
            )
        self._progress.log(f"copying: loss {loss:.3f} on predictable tokens")

    def _teach(
        self,
        model: LanguageModel,
        examples: Sequence[Sequence[Sample]],
        role: RoleName,
        scenes: Sequence[SeenScene] = (),
    ) -> None:
        plan = self._plan
        epochs = {
            "policy": plan.policy_epochs,
            "judge": plan.judge_epochs,
            "adapter": plan.adapter_epochs,
            "value": plan.value_epochs,
        }[role]
        # The adapter must learn names: they tell which objects can be heated, and where things may
        # be.
        renamed = role != "adapter"
        teach(
            model,
            merge_groups(examples, plan.together),
            role,
            epochs=epochs,
            learning_rate=plan.learning_rate,
            seed=derive(plan.seed, "order", role),
            renaming=self._renaming(model) if renamed else Renaming([], len(model.tokenizer)),
            progress=self._progress,
            rehearsed=None if role == "adapter" else self._rehearsed(model, role, scenes),
            pack_tokens=plan.pack_tokens,
        )
        save_in_bfloat16(model, self._out / role)

    def _rehearsed(
        self, model: LanguageModel, role: RoleName, scenes: Sequence[SeenScene]
    ) -> Callable[[], Sequence[SFTBatch]] | None:
        """Returns a function that draws the drill of an update, or None if the domain has none."""
        seed = derive(self._plan.seed, "rehearsed", role)
        if scenes and isinstance(self._teacher, SeeingTeacher):
            return Rehearsal(model, scenes, self._teacher.link, seed).draw
        exercises = list(make_batches(self._exercises(model), model))
        return Drill(exercises, self._renaming(model), seed).draw if exercises else None

    def _teach_exercises(self, model: LanguageModel) -> None:
        """Teaches responses that depend only on the task, if the teacher has such exercises."""
        plan = self._plan
        exercises = self._exercises(model)
        if exercises:
            teach(
                model,
                exercises,
                "exercises",
                epochs=plan.exercise_epochs,
                learning_rate=plan.learning_rate,
                seed=derive(plan.seed, "order", "exercises"),
                renaming=self._renaming(model),
                progress=self._progress,
            )

    def _exercises(self, model: LanguageModel) -> list[list[Sample]]:
        """Returns the exercises in the policy's prompts, without a screen."""
        plan = self._plan
        if not (plan.exercises and isinstance(self._teacher, DrillingTeacher)):
            return []
        seed = derive(plan.seed, "exercises")
        tasks = self._domain.tasks("train", plan.exercises, seed)
        exercises = self._teacher.exercises(tasks, random.Random(seed))
        writer = self._writer(model)
        return merge_groups([[writer.exercise(each)] for each in exercises], EXERCISES)

    def _renaming(self, model: LanguageModel) -> Renaming:
        """Returns a renaming of the interchangeable words that are single tokens, with and without
        a space before."""
        groups: list[list[int]] = []
        for words in self._teacher.interchangeable():
            for space in (" ", ""):
                spelled = [model.encode(space + word) for word in words]
                groups.append([ids[0] for ids in spelled if len(ids) == 1])
        return Renaming(groups, len(model.tokenizer))

    def _writer(self, model: LanguageModel) -> SampleWriter:
        return SampleWriter(model, self._domain, SCREENSHOTS if self._plan.sight else 0)

    def _agent(self, policy: LanguageModel, temperature: float) -> Agent:
        chat_model = LocalChatModel(policy, embedded_engine(policy))
        return build_policy(chat_model, self._domain, self._config, temperature)

    def _measure_policy(self, policy: LanguageModel) -> dict[str, Any]:
        """Returns the success rate, and for a vision model also the one on blank images; the
        difference comes from looking."""
        measured = self._measure_success(policy)
        if self._plan.sight:
            self._progress.log("policy on blank images:")
            measured[BLANK] = self._measure_success(blindfolded(policy))
        return measured

    def _measure_success(self, policy: LanguageModel) -> dict[str, Any]:
        plan = self._plan
        return measure_policy(
            lambda temperature: self._agent(policy, temperature),
            self._domain,
            self._pool,
            episodes=plan.episodes,
            max_steps=plan.max_steps,
            seed=plan.seed,
            progress=self._progress,
            parallel_episodes=plan.parallel_episodes,
            lockstep=plan.lockstep,
        )

    def _judgements(
        self, writer: SampleWriter, rollouts: Sequence[Trajectory]
    ) -> list[list[Sample]]:
        """Returns judgements of every step by the oracle, some of its labels flipped.

        Good and bad steps are balanced: the surplus of the more frequent kind is dropped."""
        rng = np.random.default_rng(derive(self._plan.seed, "noise"))
        labelled = self._labelled(rollouts)
        if len({label for _, labels in labelled for label in labels if label}) == 1:
            # The policy does everything right, or everything wrong; an expert that slips does both.
            demonstrator = self._teacher.demonstrator(SLIPS[0])
            games = list({t.task.id: t.task for t in rollouts}.values())
            labelled += self._labelled(self._play(demonstrator, games, 1, "demos to judge"))
        good = sum(label == 1 for _, labels in labelled for label in labels)
        bad = sum(label == -1 for _, labels in labelled for label in labels)
        keep = {1: min(1.0, bad / max(good, 1)), -1: min(1.0, good / max(bad, 1)), 0: 0.0}
        samples: list[list[Sample]] = []
        for trajectory, labels in labelled:
            kept: list[Sample] = []
            for i, label in enumerate(labels):
                if rng.random() < keep[label]:
                    score = -label if rng.random() < self._plan.label_noise else label
                    steps = trajectory.steps[: i + 1]
                    text = self._teacher.judgement(trajectory.task, steps, score)
                    source = f"{trajectory.id}/{i}"
                    kept.append(writer.judgement(source, trajectory.task, steps, text))
            samples.append(kept)
        return samples

    def _labelled(self, rollouts: Sequence[Trajectory]) -> list[tuple[Trajectory, list[int]]]:
        labels = oracle_labels(self._domain, rollouts)
        return [(t, labels.get(t.id, [])) for t in rollouts]

    def _valuations(
        self, writer: SampleWriter, policy: LanguageModel, rollouts: Sequence[Trajectory]
    ) -> list[list[Sample]]:
        """Returns valuations of states that the rollouts reached, by continuing from there."""
        teacher = self._teacher
        assert isinstance(teacher, ValueTeacher)  # checked before the build
        agent, plan = self._agent(policy, 1.0), self._plan
        graded = grades_of_states(
            rollouts, agent, lambda own, asked: self._played(own, asked, "continuations"), plan
        )
        return [
            [
                writer.valuation(
                    f"{t.id}/{i}",
                    t.task,
                    t.steps[:i],
                    teacher.valuation(t.task, t.steps[:i], grade),
                )
                for i, grade in states
            ]
            for t, states in zip(rollouts, graded, strict=True)
        ]

    def _judged_rollouts(self, policy: LanguageModel) -> JudgeEvalSet:
        """Returns rollouts of unseen tasks, with the oracle's labels, to measure a judge on."""
        count = min(200, self._plan.episodes)
        seed = derive(self._plan.seed, "judged")
        _, games = fresh_tasks(self._domain, "tune", count, seed)
        rollouts = self._play(self._agent(policy, 1.0), games, 1, "judged rollouts")
        return JudgeEvalSet(rollouts, oracle_labels(self._domain, rollouts))

    def _diagnose(
        self, judge: LanguageModel, evaluation: JudgeEvalSet, kind: type[LLMJudge] = LLMJudge
    ) -> dict[str, Any]:
        """Returns a judge's measures, and for one that sees also those on blank images."""
        measured = self._measures(judge, evaluation, kind)
        if self._plan.sight:
            self._progress.log("judge on blank images:")
            measured[BLANK] = self._measures(blindfolded(judge), evaluation, kind)
        return measured

    def _measures(
        self, judge: LanguageModel, evaluation: JudgeEvalSet, kind: type[LLMJudge]
    ) -> dict[str, Any]:
        chat_model = LocalChatModel(judge, embedded_engine(judge))
        role = kind(
            chat_model,
            self._domain,
            Sampling(0.8, self._plan.judgement_tokens),
            3,
            screenshots=self._plan.sight,
        )
        evaluated = evaluation.evaluate(role, 1.0, self._plan.seed, self._progress)
        measured = asdict(evaluated.diagnostics)
        if kind is ValueJudge:
            named = judge_metrics("value", evaluated.diagnostics, evaluated.counts)
            measured = {name.removeprefix("value/"): number for name, number in named.items()}
        self._progress.log(f"judge: {measured}")
        return measured

    def _proposals(
        self, writer: SampleWriter, critics: Sequence[str], failed: Sequence[Trajectory]
    ) -> list[list[Sample]]:
        """Returns harder and easier tasks by rule, with none, one or two of `critics`, from any
        task: the adapter must learn to answer well with and without critics. A `FailureTeacher`
        answers a task's own `failed` rollouts, and no other critics are shown."""
        plan = self._plan
        rng = random.Random(derive(plan.seed, "proposals"))
        samples: list[list[Sample]] = []
        if isinstance(self._teacher, FailureTeacher):
            critics = ()
            by_task: dict[str, list[Trajectory]] = {}
            for t in failed:
                by_task.setdefault(t.task.id, []).append(t)
            samples += [writer.revisions(self._teacher, own, rng) for own in by_task.values()]
        for root in self._domain.tasks("train", plan.adapter_games, derive(plan.seed, "adapter")):
            answers = writer.proposals(self._teacher, root, critics, rng)
            if answers:
                samples.append(answers)
        return samples

    def _measure_adapter(self, adapter: LanguageModel, critics: Sequence[str]) -> dict[str, Any]:
        """Returns the adapter's measurements on unseen training tasks."""
        plan = self._plan
        seed = derive(plan.seed, "adapter check")
        roots = self._domain.tasks("train", min(240, plan.episodes), seed)
        return measure_adapter(
            adapter,
            self._domain,
            roots,
            critics=critics,
            max_tokens=plan.proposal_tokens,
            seed=plan.seed,
            progress=self._progress,
        )
