from __future__ import annotations

import socket

import pytest

from rlanything.serving.address import ServeError, bound, is_local, is_loopback, key_of


@pytest.mark.parametrize(
    "header", ["localhost:80", "LOCALHOST", "127.0.0.1", "127.9.9.9:1", "[::1]:80"]
)
def test_a_request_may_call_this_machine_by_its_loopback_names(header: str) -> None:
    assert is_local([header], [])
    assert is_local([header], ["http://localhost:3000"])


@pytest.mark.parametrize(
    "header", ["", ":80", "evil.example", "localhost.evil.example:80", "10.0.0.1", "[::2]", "[::1"]
)
def test_every_other_name_may_be_a_web_page(header: str) -> None:
    assert not is_local([header], [])
    assert not is_local(["localhost", header], [])


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost.b.example", "null"])
def test_another_sites_page_is_not_this_machine(origin: str) -> None:
    assert not is_local(["localhost"], [origin])


def test_an_address_of_version_6_is_known_without_brackets() -> None:
    assert is_loopback("::1")
    assert not is_loopback("::")


def test_a_bound_socket_takes_no_connection_yet() -> None:
    with bound("127.0.0.1", 0) as listening:
        address = listening.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)
        listening.listen()
        with pytest.raises(ServeError, match=f"--port {address[1]}: Address already in use"):
            bound(*address)


def test_a_variable_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FULL_KEY", "secret")
    monkeypatch.setenv("EMPTY_KEY", "")
    assert key_of(None) is None
    assert key_of("FULL_KEY") == "secret"
    for variable in ("EMPTY_KEY", "NO_SUCH_KEY"):
        with pytest.raises(ServeError, match=f"--key-variable: {variable} is empty: set it"):
            key_of(variable)
