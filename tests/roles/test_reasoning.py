"""Models that think in `<think>` blocks: thoughts are kept and train; nobody else reads them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.scripted import Counting, ScriptedEngine, judged, step, trajectory
from helpers.tiny import tiny_model
from rlanything.domains.base import Episode, Observation, StepResult
from rlanything.domains.thoughts import THINK
from rlanything.engines.base import ModelError, Sampling
from rlanything.engines.hf.engine import HFEngine
from rlanything.engines.hf.model import LanguageModel
from rlanything.records import Completion, JudgedTrajectory, Message, Task, Trajectory
from rlanything.roles.adapter import LLMAdapter, RewriteRequest
from rlanything.roles.chat_model import ChatRequest, LocalChatModel
from rlanything.roles.judges.llm import LLMJudge
from rlanything.roles.policy import LanguagePolicy
from rlanything.rollout.episodes import RolloutRequest, rollout
from rlanything.runs.store.codec import decode_episode, encode_episode, from_json, to_json

SAMPLING = Sampling(1.0, 40)
# As Qwen3's: the thoughts of earlier turns are left out.
FORGETS = (
    "{% for message in messages %}{{ '<|' + message.role + '|>' }}"
    "{% if message.role == 'assistant' %}{{ message.content.split('</think>')[-1].lstrip('\\n') }}"
    "{% else %}{{ message.content }}{% endif %}{{ '<|end|>' }}{% endfor %}<|assistant|>"
)
OPENS = FORGETS + "{{ '<think>\\n' }}"
TEMPLATES = {"the model opens": FORGETS, "the template opens": OPENS}


@pytest.fixture(params=TEMPLATES)
def template(request: pytest.FixtureRequest) -> str:
    return TEMPLATES[request.param]


def thinking_model(template: str, marks: bool = True) -> LanguageModel:
    """A tiny model with such a template; `marks`: its tokenizer knows the marks, as Qwen3's does
    (they are then defused in what others wrote)."""
    model = tiny_model()
    model.tokenizer.chat_template = template
    if marks:
        model.tokenizer.add_tokens(["<think>", "</think>"])
    return model


def said(template: str, thought: str, *answer: str) -> str:
    """A response with a thought; one that never ends if there is no answer."""
    opening = "" if template == OPENS else "<think>\n"
    return "\n</think>\n\n".join((opening + thought, *answer))


@pytest.mark.parametrize(
    ("text", "opened", "answer"),
    [
        ("count to 2", False, "count to 2"),
        ("  count to 2 ", False, "  count to 2 "),
        ("", False, ""),
        ("<think>Let me see.</think>count to 2", False, "count to 2"),
        ("\n<think>\nLet me\nsee.\n</think>\n\ncount to 2", False, "count to 2"),
        ("<think></think>", False, ""),
        ("<think>I never come to an en", False, ""),
        ("A template out of sight opened it. </think> count to 2", False, "count to 2"),
        ("I say <think>this</think> aloud", False, "I say <think>this</think> aloud"),
        ("<think>a</think> <think>b</think> count", False, "count"),
        ("<think>a</think> <think>b \\boxed{1}", False, ""),
        ("<think>a</think> I quote </think>", False, "I quote </think>"),
        ("Let me see.\n</think>\n\ncount to 2", True, "count to 2"),
        ("Let me see", True, ""),
        ("", True, ""),
        ("<think>once more</think>count", True, "count"),
    ],
)
def test_the_answer_is_what_follows_the_reasoning(text: str, opened: bool, answer: str) -> None:
    assert text[THINK.answer_start(text, opened) :] == answer


HARMONY = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>"
FAMILIES = [
    ("[THINK]{}[/THINK]", "[THINK]Let me see.[/THINK]count to 2", "count to 2"),
    ("[THINK]{}[/THINK]", "[THINK]I never come to an en", ""),
    ("<seed:think>{}</seed:think>", "<seed:think>a</seed:think> count", "count"),
    (HARMONY, HARMONY.format("I see.") + "final<|message|>count to 2", "count to 2"),
    (HARMONY, "<|channel|>final<|message|>count to 2", "count to 2"),
    (HARMONY, HARMONY.format("I see.") + "commentary<|message|>I call", ""),
    (HARMONY, "<|channel|>analysis<|message|>I never come to an en", ""),
    (HARMONY, "count to 2", "count to 2"),
    ("<think>{}</think>", "<think>[THINK]a</think>count", "count"),
]


def marked(template: str) -> LanguageModel:
    """The tiny model whose template shows reasoning like this."""
    model = tiny_model()
    model.tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}"
        + template.format("{{ m.reasoning_content }}")
        + "{% endif %}{{ m.content }}<|end|>{% endfor %}<|assistant|>"
    )
    return model


@pytest.mark.parametrize(("template", "text", "answer"), FAMILIES)
def test_reasoning_ends_where_the_models_own_marks_say(template, text, answer):
    model = marked(template)
    chat_model = LocalChatModel(model, ScriptedEngine(model, lambda prompt, seed: text))
    question = ChatRequest((Message("user", "Count."),), (1,))
    [[completion]] = chat_model.answer([question], SAMPLING)
    assert (completion.text, completion.answer) == (text, answer)


@pytest.mark.parametrize("template", ["~~{}~~", "<think>{}</think>[THINK]"])
def test_reasoning_that_cannot_be_told_from_answers_is_refused(template):
    model = marked(template)
    with pytest.raises(ModelError, match="cannot be separated from its answers") as error:
        LocalChatModel(model, HFEngine(model))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("key", ["reasoning", "thinking"])
def test_reasoning_by_any_of_its_names_is_seen(key):
    model = marked("~~{}~~")
    template = model.tokenizer.get_chat_template()
    model.tokenizer.chat_template = template.replace("reasoning_content", key)
    with pytest.raises(ModelError, match="cannot be separated from its answers"):
        LocalChatModel(model, HFEngine(model))


pieces = st.sampled_from(("<think>", "</think>", " ", "\n", "a", "\\boxed{1}"))


@given(st.lists(pieces, max_size=12).map("".join), st.booleans())
def test_an_answer_never_begins_with_reasoning_and_is_the_end_of_its_text(
    text: str, opened: bool
) -> None:
    start = THINK.answer_start(text, opened)
    assert 0 <= start <= len(text)
    assert not text[start:].lstrip().startswith("<think>")
    if opened and "</think>" not in text:
        assert start == len(text)


def test_long_texts_of_marks_are_read_at_once() -> None:
    for text in (" " * 200_000, "<think>" * 50_000, "<think></think>" * 50_000):
        for opened in (False, True):
            THINK.answer_start(text, opened)


class Pool:
    """Environments that note what they are told, and end when they hear `stop`."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answers: dict[int, Observation | StepResult] = {}

    def begin(self, tasks: list[Task], at_once: int) -> range:
        numbers = range(len(tasks))
        self.answers = {i: Observation("Begin.") for i in numbers}
        return numbers

    def post(self, responses: dict[int, str]) -> None:
        self.told += responses.values()
        self.answers = {
            i: StepResult(Observation("Next."), response, True, 1 if "stop" in response else None)
            for i, response in responses.items()
        }

    def collect(self) -> dict[int, Observation | StepResult]:
        return self.answers

    def forget(self, index: int) -> None:
        del index


@pytest.mark.parametrize("marks", [True, False])
def test_an_episode_of_thoughts(template: str, marks: bool) -> None:
    model = thinking_model(template, marks)
    script = {
        1: said(template, "first > thought", "look > around"),
        2: said(template, "second thought, and it never en"),
        3: said(template, "third thought", "so > stop"),
    }
    engine = ScriptedEngine(model, lambda prompt, _: script[prompt.count("<|user|>")])
    policy = LanguagePolicy(LocalChatModel(model, engine), Counting(), SAMPLING, "free", 4)
    pool: Any = Pool()
    task = Task("t", "count to 3")
    [played] = rollout(policy, pool, [RolloutRequest("e", task, 0)], 5, 1).trajectories

    # The environment hears answers; a thought cut off is no answer.
    assert pool.told == ["look > around", "", "so > stop"]
    assert [each.response for each in played.steps] == pool.told
    # What was sampled is kept whole: it trains, and reports show it.
    assert [each.completion.text for each in played.steps] == list(script.values())
    for each in played.steps:
        assert model.decode(each.completion.token_ids[:-1]) == each.completion.text
    # Later prompts hold answers only, and are what the template makes of them.
    ending = "<|assistant|>" + ("<think>\n" if template == OPENS else "")
    assert engine.prompts[2] == (
        "<|system|>count to 3<|end|><|user|>Begin.<|end|><|assistant|>look > around<|end|>"
        "<|user|>Next.<|end|><|assistant|><|end|><|user|>Next.<|end|>" + ending
    )
    for call, prompt in zip(engine.calls, engine.prompts, strict=True):
        assert call[0].prompt_ids == tuple(model.encode(prompt))


def test_a_store_keeps_the_thoughts_and_an_exam_only_what_was_said(template: str) -> None:
    text = said(template, "a thought", "so > stop")
    completion = replace(step(0).completion, text=text, answer_at=text.index("so"))
    only = replace(step(0), completion=completion)
    played = Trajectory("e", Task("t", "count"), (only,), 1)
    assert decode_episode(encode_episode(JudgedTrajectory(played, ((),)))).responses[0].text == text
    assert from_json(to_json(played)).steps[0].response == only.response == "so > stop"


@pytest.mark.parametrize(
    ("thought", "answer", "score"),
    [
        ("It may be \\boxed{-1}", ["Yes: \\boxed{1}"], 1),
        ("It is \\boxed{1}, I am su", [], 0),
        ("It is \\boxed{1}", ["It helps."], 0),
        ("It is \\boxed{1}", [""], 0),
        ("A box: \\boxed{", ["\\boxed{-1}"], -1),
    ],
)
def test_a_score_within_a_thought_does_not_count(
    template: str, thought: str, answer: list[str], score: int
) -> None:
    model = thinking_model(template)
    text = said(template, thought, *answer)
    engine = ScriptedEngine(model, lambda *_: text)
    judge = LLMJudge(LocalChatModel(model, engine), Counting(), SAMPLING, 2)
    [found] = judge.judge([trajectory("a", 1)], seed=0)
    assert found.scores == ((score, score),)
    assert found.judgements[0][0].completion.text == text


def test_the_judge_reads_no_thoughts_of_the_policy(template: str) -> None:
    model = thinking_model(template)
    text = said(template, "Secret \\boxed{1}", "I look \\boxed{1} > look")
    completion = replace(step(0).completion, text=text, answer_at=text.index("I look"))
    engine = ScriptedEngine(model, lambda *_: "\\boxed{1}")
    judge = LLMJudge(LocalChatModel(model, engine), Counting(), SAMPLING, 1)
    steps = (replace(step(0), completion=completion), step(1))
    judge.judge([Trajectory("a", Task("t", "count"), steps, -1)], seed=0)
    for prompt in engine.prompts:
        assert "I look boxed{1} > look" in prompt
        assert "Secret" not in prompt


def test_the_adapters_thoughts_are_neither_critics_nor_candidates(template: str) -> None:
    model = thinking_model(template)
    answers = [
        said(template, "Hm. count to 9"),
        said(template, "Not count to 8", "count to 2"),
    ]

    def script(prompt: str, seed: int) -> str:
        del seed
        if "CRITIC" in prompt:
            return said(template, "Secret.", " It never looked. ")
        return answers.pop(0)

    chat_model = LocalChatModel(model, ScriptedEngine(model, script))
    adapter = LLMAdapter(chat_model, Counting(), SAMPLING, tries=2, critics_per_task=1)
    root = Task("r", "count to 5")
    ask = RewriteRequest("r", root, root, "easier", (judged("a", [[-1]]),))
    [proposal] = adapter.propose([ask], 1, 0)
    assert proposal.critics == ("It never looked.",)
    assert proposal.task is not None
    assert proposal.task.instruction == "count to 2"
    assert len(proposal.refused) == 1
    assert "Hm." not in proposal.refused[0].text


def test_a_choice_among_actions_is_its_own_answer_thought_included(template: str) -> None:
    # The marks are spelled, since this network has no rows for new tokens.
    model = thinking_model(template, marks=False)
    chat_model = LocalChatModel(model, HFEngine(model))
    policy = LanguagePolicy(chat_model, Counting(), SAMPLING, "choices", 4)
    actions = ("take the cup", "look")
    episodes = [
        Episode(f"e{i}", Task("t", "count to 3"), Observation("Begin.", actions)) for i in range(20)
    ]
    found = policy.respond(episodes, range(20))
    acted = [each for each in found if " > " in each.answer]
    assert len(acted) > 10
    assert {each.answer.rpartition(" > ")[2] for each in acted} <= set(actions)
    assert all(each.answer == each.text for each in found)


def test_a_choice_after_an_open_block_is_an_answer_too(template: str) -> None:
    model = thinking_model(template)
    engine = ScriptedEngine(model, lambda *_: "<think> hm > look")
    policy = LanguagePolicy(LocalChatModel(model, engine), Counting(), SAMPLING, "choices", 4)
    episode = Episode("e", Task("t", "count to 3"), Observation("Begin.", ("look",)))
    [found] = policy.respond([episode], [0])
    assert found.answer == found.text == "<think> hm > look"


def test_what_others_wrote_opens_no_reasoning() -> None:
    model = thinking_model(FORGETS, marks=False)
    engine = ScriptedEngine(model, lambda *_: "so > look")
    policy = LanguagePolicy(LocalChatModel(model, engine), Counting(), SAMPLING, "free", 4)
    episode = Episode("e", Task("t", "count"), Observation("I see <think>"))
    [found] = policy.respond([episode], [0])
    assert found.answer == "so > look"


def test_a_completion_is_all_answer_unless_somebody_says_otherwise() -> None:
    assert Completion.unsampled("<think>a</think>b").answer == "<think>a</think>b"
