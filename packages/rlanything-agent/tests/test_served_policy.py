"""A served policy learns from episodes of clients that know nothing of it, whatever kills it."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from starlette.testclient import TestClient

from helpers.agents import Bridge, said
from rlanything.domains.base import Episode
from rlanything.domains.requests import PromptTokens, RequestsRefused
from rlanything.records import Completion
from rlanything_agent import late
from rlanything_agent.serving import episodes as remembering
from rlanything_agent.serving.app import Keys, PolicyApi
from rlanything_agent.serving.episodes import Update
from rlanything_agent.serving.journal import Journal, JournalError
from rlanything_agent.serving.service import PolicyService, ServiceSettings

OPENING = "Guess a number."
SIGN = ": keep-alive\n\n"


class Fake:
    """A policy whose weights are a digest of all that it was trained on, and decide with the seed
    what it says."""

    exact = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trained: list[list[tuple[str, int, list[tuple[str, str]]]]] = []
        self.killed = False
        """Whether its process is killed in the middle of the next update."""

    @property
    def version(self) -> int:
        return len(list(self.folder.glob("weights-*")))

    @property
    def weights(self) -> str:
        last = self.folder / f"weights-{self.version}"
        return last.read_text() if last.exists() else "new"

    def respond(self, episodes: Sequence[Episode], seeds: Sequence[int]) -> list[Completion]:
        requests = [episode.observation.request for episode in episodes]
        counted = {i: PromptTokens(7) for i, r in enumerate(requests) if r and r.count_only}
        if counted:
            raise RequestsRefused(counted)
        return [said(f"{self.weights[:3]} {seed % 10}") for seed in seeds]

    def release_cache(self) -> None: ...

    def update(self, update: Update) -> str:
        trajectories = [episode.trajectory() for episode in update.episodes]
        self.trained.append(
            [
                (t.id, t.outcome, [(s.observation, s.response) for s in t.steps])
                for t in trajectories
            ]
        )
        if self.killed:
            raise KeyboardInterrupt
        digest = hashlib.sha256(f"{self.weights}{trajectories!r}".encode()).hexdigest()
        (self.folder / f"weights-{update.number}").write_text(digest)
        return f"version {update.number}"


class Service:
    """A served policy, as its clients have it."""

    def __init__(self, folder: Path, keys: Keys = Keys(), **settings: Any) -> None:  # noqa: B008
        self.policy = Fake(folder)
        self.journal = Journal(folder / "journal")
        chosen = ServiceSettings(**{"seed": 5, "every": 2, **settings})
        self.lines: list[str] = []
        self.service = PolicyService(
            self.policy, self.journal, self.policy.version, chosen, self.lines.append
        )
        self.client = TestClient(PolicyApi(self.service, keys, local=False).app)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.service.run()
        except KeyboardInterrupt:
            return

    def ask(self, messages: Sequence[Any], path: str = "/v1", **headers: str) -> Any:
        body = {"model": "gpt-4o", "messages": list(messages)}
        reply = self.client.post(f"{path}/chat/completions", json=body, headers=headers)
        assert reply.status_code == 200, reply.text
        return reply

    def end(self, name: str, outcome: int, **headers: str) -> Any:
        reply = self.client.post(
            "/outcomes", json={"outcomes": [{"id": name, "outcome": outcome}]}, headers=headers
        )
        assert reply.status_code == 200, reply.text
        return reply.json()


@contextmanager
def served(folder: Path, **settings: Any) -> Iterator[Service]:
    folder.mkdir(exist_ok=True)
    service = Service(folder, **settings)
    service.thread.start()
    try:
        yield service
    finally:
        service.service.stop()
        service.thread.join(10)
        service.journal.close()


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def follow(messages: list[Any], reply: Any, hint: str) -> list[Any]:
    """A chat that goes on after a reply, as every client sends it."""
    return [*messages, reply.json()["choices"][0]["message"], user(hint)]


def test_a_chat_that_goes_on_is_one_episode_and_its_outcome_trains_it(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        first = service.ask([user(OPENING)])
        other = service.ask([user(OPENING)])
        chat = follow([user(OPENING)], first, "Higher.")
        second = service.ask(chat)
        names = [each.headers["x-rlanything-episode"] for each in (first, other, second)]
        assert names == ["episode-0", "episode-1", "episode-0"]
        assert {each.headers["x-rlanything-version"] for each in (first, second)} == {"0"}
        assert service.end(second.json()["id"], 1)["taken"] == [second.json()["id"]]
        answer = service.end(other.json()["id"], -1)
        assert (answer["waiting"], answer["updates"]) == (0, 1)
        # The next request waits for the update, and is answered by the new weights.
        third = service.ask([user(OPENING)])
        assert third.headers["x-rlanything-version"] == "1"
        [trained] = service.policy.trained
        assert [(outcome, [seen for seen, _ in steps]) for _, outcome, steps in trained] == [
            (1, [OPENING, "Higher."]),
            (-1, [OPENING]),
        ]
        assert service.client.get("/health").json()["version"] == 1


def test_an_outcome_ends_an_episode_once(tmp_path: Path) -> None:
    with served(tmp_path, every=9) as service:
        first = service.ask([user(OPENING)])
        name = first.json()["id"]
        service.end(name, 1)
        assert service.end(name, 1)["ended_before"] == [name]
        assert service.end("chatcmpl-99", 1)["unknown"] == ["chatcmpl-99"]
        later = service.ask(follow([user(OPENING)], first, "Once more."))
        assert later.headers["x-rlanything-episode"] == "episode-1"
        twice = [{"id": later.json()["id"], "outcome": 1}, {"id": "episode-1", "outcome": -1}]
        refused = service.client.post("/outcomes", json={"outcomes": twice})
        assert refused.status_code == 400
        assert "one episode: give one outcome" in refused.text


def test_an_address_of_its_own_keeps_a_client_that_rewrites_its_chat_in_one_episode(
    tmp_path: Path,
) -> None:
    with served(tmp_path, every=2) as service:
        path = "/episodes/anna/v1"
        for text in ("Read the file.", "A summary of what came before."):
            reply = service.ask([user(text)], path)
            assert reply.headers["x-rlanything-episode"] == "anna"
        service.end("anna", 1)
        service.ask([user("Another task.")], path)
        service.end("anna", -1)
        service.ask([user(OPENING)])
        [trained] = service.policy.trained
        assert [len(steps) for _, _, steps in trained] == [2, 1]
        odd = service.client.post("/episodes/a%20b/v1/chat/completions", json={})
        assert odd.status_code == 400


def test_three_dialects_are_one_episode_and_their_own_clients_read_it(tmp_path: Path) -> None:
    with served(tmp_path, every=1) as service:
        transport: dict[str, Any] = {"base_url": "http://testserver/v1", "api_key": "none"}
        plain = openai.OpenAI(**transport, http_client=Bridge(service.client))
        claude = anthropic.Anthropic(
            base_url="http://testserver", api_key="none", http_client=Bridge(service.client)
        )
        first = plain.responses.create(model="gpt-5", input=OPENING)
        chat: list[Any] = [user(OPENING), {"role": "assistant", "content": first.output_text}]
        second = claude.messages.create(
            model="claude", max_tokens=9, messages=[*chat, user("Higher.")]
        )
        assert second.id == "msg_1"
        third = plain.responses.create(
            model="gpt-5", previous_response_id=first.id, input="And lower?"
        )
        assert service.end(third.id, 1)["taken"] == [third.id]
        assert claude.messages.count_tokens(model="m", messages=chat[:1]).input_tokens == 7
        service.ask([user(OPENING)])
        [[(_, _, steps)]] = service.policy.trained
        assert [seen for seen, _ in steps] == [OPENING, "Higher.", "And lower?"]


def test_a_request_sent_again_has_the_same_answer(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        first = service.ask([user(OPENING)])
        retry = service.ask([user(OPENING)], **{"x-stainless-retry-count": "1"})
        assert retry.json() == first.json()
        keyed = [service.ask([user("Key.")], **{"idempotency-key": "k"}).json() for _ in range(2)]
        assert keyed[0] == keyed[1]
    with served(tmp_path) as service:  # after a kill too
        retry = service.ask([user(OPENING)], **{"x-stainless-retry-count": "2"})
        assert retry.json() == first.json()
        assert service.ask([user(OPENING)]).json()["id"] == "chatcmpl-2"


def test_a_late_stream_has_its_headers_as_comments_and_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "SECONDS", 0.0)
    body = {"model": "m", "messages": [user(OPENING)], "stream": True}
    with served(tmp_path) as service:
        texts = [service.client.post("/v1/chat/completions", json=body).text for _ in range(2)]
        for number, text in enumerate(texts):
            comments, _, events = text.replace(SIGN, "").partition("data: ")
            assert ": x-rlanything-version: 0\n\n: x-rlanything-episode: " in comments
            assert f'"chatcmpl-{number}"' in events, "the second is a request of its own"
        assert service.end("chatcmpl-1", 1)["taken"] == ["chatcmpl-1"]


def test_a_response_can_be_continued_after_a_kill(tmp_path: Path) -> None:
    with served(tmp_path) as service:
        first = service.client.post("/v1/responses", json={"model": "m", "input": OPENING}).json()
    with served(tmp_path) as service:
        body = {"model": "m", "previous_response_id": first["id"], "input": "Higher."}
        reply = service.client.post("/v1/responses", json=body)
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-rlanything-episode"] == "episode-0"


def games(said: list[str]) -> Generator[tuple[Any, ...], Any, None]:
    """Yields the operations of a client that plays four games, and gets what came of each."""
    for number in range(4):
        chat: list[Any] = [user(OPENING)]
        name = ""
        for hint in ("Higher.", "Lower."):
            reply = yield "ask", chat
            said.append(reply.json()["choices"][0]["message"]["content"])
            name = reply.json()["id"]
            chat = follow(chat, reply, hint)
        yield "end", name, 1 if number % 3 else -1


def played_through(folder: Path, kill_at: int | None, how: str) -> tuple[str, list[str]]:
    """Plays four games. Operation `kill_at` is cut off by a kill, and sent again. Returns the last
    weights and all that was said."""
    said: list[str] = []
    with served(folder) as service:
        operations = games(said)
        operation = next(operations)
        done = 0
        while done != kill_at:
            try:
                operation = operations.send(run(service, operation))
            except StopIteration:
                service.ask([user("The end.")])  # after the last update
                return service.policy.weights, said
            done += 1
        size = service.journal.path.stat().st_size
        service.policy.killed = how in ("half written", "in the update")
        if how != "before it was written":
            service.service.heard = lambda exchange: None  # type: ignore[method-assign]
            with suppress(AssertionError):  # the last operation's update may be what is killed
                run(service, operation)
    if how == "half written":
        left = service.journal.path.read_bytes()
        service.journal.path.write_bytes(left[: (size + len(left)) // 2])
    with served(folder) as service:
        while True:
            try:
                operation = operations.send(run(service, operation))
            except StopIteration:
                service.ask([user("The end.")])
                return service.policy.weights, said


def run(service: Service, operation: tuple[Any, ...]) -> Any:
    kind, *given = operation
    return service.ask(*given) if kind == "ask" else service.end(*given)


KILLS = ("before it was written", "half written", "before it was sent", "in the update")


@pytest.mark.parametrize("how", KILLS)
def test_a_kill_at_any_moment_changes_no_weights_and_no_answer(tmp_path: Path, how: str) -> None:
    whole = played_through(tmp_path / "whole", None, how)
    assert len(whole[1]) == 8
    for kill_at in range(12):
        assert played_through(tmp_path / f"{kill_at}", kill_at, how) == whole, kill_at


def test_clients_with_equal_chats_at_the_same_time_get_their_own_outcomes(tmp_path: Path) -> None:
    def play(number: int) -> None:
        for _ in range(3):
            first = service.ask([user(OPENING)])
            last = service.ask(follow([user(OPENING)], first, f"I am {number % 2}."))
            service.end(last.json()["id"], 1 if number % 2 else -1)

    with served(tmp_path, every=6) as service:
        clients = [threading.Thread(target=play, args=(number,)) for number in range(6)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(60)
        service.ask([user("The end.")])
        trained = [episode for batch in service.policy.trained for episode in batch]
        assert len(trained) == 18
        for _, outcome, steps in trained:
            assert [seen for seen, _ in steps] == [OPENING, f"I am {max(outcome, 0)}."]


def test_a_replay_of_the_journal_makes_the_same_updates(tmp_path: Path) -> None:
    weights, _ = played_through(tmp_path / "lived", None, "")
    lived = (tmp_path / "lived" / "journal").read_bytes()
    (tmp_path / "again").mkdir()
    shutil.copyfile(tmp_path / "lived" / "journal", tmp_path / "again" / "journal")
    # Settings under which more updates would be due, if clients could ask.
    again = Service(tmp_path / "again", every=1, idle_seconds=0.0)
    again.service.catch_up()
    assert (again.policy.version, again.policy.weights) == (2, weights)
    assert (tmp_path / "again" / "journal").read_bytes() == lived


def test_a_journal_that_ends_at_any_line_is_gone_on_with(tmp_path: Path) -> None:
    played_through(tmp_path / "whole", None, "")
    lines = (tmp_path / "whole" / "journal").read_bytes().splitlines(keepends=True)
    for count in range(len(lines)):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        (folder / "journal").write_bytes(b"".join(lines[:count]))
        with served(folder) as service:
            service.ask([user("Another game.")])
            health = service.service.health()
            assert (health["updates_due"], health["ended_episodes"] < 2) == (0, True)


def test_a_damaged_journal_is_named_with_its_line(tmp_path: Path) -> None:
    played_through(tmp_path / "a", None, "")
    path = tmp_path / "a" / "journal"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], "nothing\n", *lines[4:]]))
    with pytest.raises(JournalError, match="line 4 is damaged; restore the file from a copy"):
        Service(tmp_path / "a")
    path.write_text("".join([*lines[:1], *lines[3:]]))
    with pytest.raises(JournalError, match="does not follow from those before it"):
        Service(tmp_path / "a")
    path.write_text("")
    with pytest.raises(JournalError, match="knows 0 updates, but the weights have had 2"):
        Service(tmp_path / "a")


def test_a_full_disk_takes_no_outcome_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(tmp_path, every=9) as service:
        name = service.ask([user(OPENING)]).json()["id"]
        body = {"outcomes": [{"id": name, "outcome": 1}]}
        with monkeypatch.context() as context:
            context.setattr("os.fsync", _full)
            refused = service.client.post("/outcomes", json=body)
            assert refused.status_code == 507
            assert "cannot be written (No space left on device); free space" in refused.text
        for reward in (10**400, True, "1", [1]):
            odd = {"outcomes": [{**body["outcomes"][0], "reward": reward}]}
            assert service.client.post("/outcomes", json=odd).status_code == 400
        assert service.client.post("/outcomes", json=body).json()["waiting"] == 1
    with served(tmp_path, every=9) as service:
        assert service.client.get("/health").json()["ended_episodes"] == 1


def test_after_an_answer_that_cannot_be_written_no_outcome_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path)
    stop, outcome = service.service.stop, {"outcomes": [{"id": "anna", "outcome": 1}]}
    answers: list[Any] = []

    def ask() -> None:
        body = {"model": "m", "messages": [user(OPENING)]}
        path = "/episodes/anna/v1/chat/completions"
        answers.append(service.client.post(path, json=body))

    def outcome_comes_before_the_stop() -> None:
        monkeypatch.undo()
        answers.append(service.client.post("/outcomes", json=outcome))
        stop()

    monkeypatch.setattr("os.fsync", _full)
    monkeypatch.setattr(service.service, "stop", outcome_comes_before_the_stop)
    asked = threading.Thread(target=ask)
    asked.start()
    with pytest.raises(JournalError, match="cannot be written"):
        service.service.run()
    asked.join()
    assert [reply.status_code for reply in answers] == [503, 503]
    service.journal.close()
    assert Service(tmp_path).service.health()["answers"] == 0


def _full(file: int) -> None:
    raise OSError(28, "No space left on device")


def test_two_keys_ask_and_only_one_teaches(tmp_path: Path) -> None:
    with served(tmp_path, keys=Keys("asks", "teaches")) as service:
        body = {"model": "m", "messages": [user(OPENING)]}
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": ""}):
            reply = service.client.post("/v1/chat/completions", json=body, headers=headers)
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_api_key")
        name = service.ask([user(OPENING)], authorization="Bearer asks").json()["id"]
        outcome = {"outcomes": [{"id": name, "outcome": 1}]}
        refused = service.client.post("/outcomes", json=outcome, headers={"x-api-key": "asks"})
        assert refused.status_code == 403
        assert "may ask the policy, but not teach it" in refused.text
        assert service.client.post("/outcomes", json=outcome).status_code == 401
        assert service.end(name, 1, authorization="Bearer teaches")["taken"] == [name]


def test_judges_alone_score_what_a_teaching_client_leaves_idle(tmp_path: Path) -> None:
    keys = Keys("asks", "teaches")
    with served(tmp_path, keys=keys, every=1, idle_seconds=0.0) as service:
        service.ask([user("Not mine.")], authorization="Bearer asks")
        service.ask([user(OPENING)], authorization="Bearer teaches")
        for _ in range(1200):
            if service.client.get("/health").json()["version"]:
                break
            threading.Event().wait(0.1)
        [[(_, outcome, steps)]] = service.policy.trained
        assert (outcome, steps[0][0]) == (remembering.UNKNOWN, OPENING)
        headers = {"authorization": "Bearer teaches"}
        reply = service.client.post("/outcomes", json={}, headers=headers)
        assert reply.status_code == 409


def test_an_idle_episode_ends_while_others_ask(tmp_path: Path) -> None:
    with served(tmp_path, every=1, idle_seconds=0.3) as service:
        service.ask([user(OPENING)])
        for i in range(1200):
            if service.client.get("/health").json()["version"]:
                break
            service.ask([user(f"Another task {i}.")])
            threading.Event().wait(0.1)
        assert service.policy.trained[0][0][2][0][0] == OPENING


def test_only_so_many_episodes_wait_for_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "MOST_OPEN", 2)
    with served(tmp_path) as service:
        names = [service.ask([user(f"Task {i}.")]).json()["id"] for i in range(3)]
        assert service.end(names[0], 1)["ended_before"] == names[:1]
        assert service.end(names[2], 1)["taken"] == names[2:]


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], {"outcomes": []}, {"outcomes": [{"id": "a"}]}, {"outcomes": ["a"]}),
        {"outcomes": [{"id": "a", "outcome": 0}]},
        {"outcomes": [{"id": "a", "outcome": True}]},
        {"outcomes": [{"id": 1, "outcome": 1}]},
        {"outcomes": [{"id": "a", "outcome": 1, "reward": "high"}]},
        {"outcomes": [{"id": "a", "outcome": 1, "won": True}]},
        {"outcomes": [{"id": "a", "outcome": 1}] * 1025},
    ],
)
def test_outcomes_of_another_form_are_refused_with_the_form(tmp_path: Path, body: Any) -> None:
    with served(tmp_path) as service:
        reply = service.client.post("/outcomes", json=body)
        assert reply.status_code == 400
        assert (
            'send {"outcomes": [{"id": "...", "outcome": 1}]}' in reply.json()["error"]["message"]
        )


def test_a_name_that_was_pointed_at_this_machine_is_refused(tmp_path: Path) -> None:
    service = Service(tmp_path)
    client = TestClient(PolicyApi(service.service, Keys(), local=True).app)
    assert client.get("/health").status_code == 403
    here = {"host": "localhost:8000"}
    assert client.get("/health", headers=here).status_code == 200
    assert client.get("/health", headers={**here, "origin": "http://a.example"}).status_code == 403
