"""Messages between two processes: whole, in time, or an error."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from rlanything.engines.channel import Channel


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), Channel(theirs)


def test_messages_arrive_whole_and_in_order_however_large(ends):
    ours, theirs = ends
    messages = [{"ids": tuple(range(500_000))}, None, "short"]
    sender = threading.Thread(target=lambda: [ours.send(each, 10) for each in messages])
    sender.start()
    assert [theirs.receive(10) for _ in messages] == messages
    sender.join()


def test_whoever_says_nothing_or_reads_nothing_is_given_up_in_time(ends):
    ours, _ = ends
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        ours.receive(0.1)
    with pytest.raises(TimeoutError):
        ours.send(bytes(50_000_000), 0.1)
    assert time.monotonic() - begun < 5


def test_a_message_that_trickles_in_does_not_move_the_deadline():
    ours, theirs = socket.socketpair()
    stop = threading.Event()

    def trickle():
        theirs.send((1000).to_bytes(8, "big"))
        while not stop.wait(0.05):
            theirs.send(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        Channel(ours).receive(0.3)
    assert time.monotonic() - begun < 9
    stop.set()
    thread.join()
    ours.close()
    theirs.close()


def test_an_end_that_is_gone_is_the_end_also_in_the_middle_of_a_message():
    for sent in (b"", b"\0\0", (10).to_bytes(8, "big") + b"half"):
        ours, theirs = socket.socketpair()
        with ours:
            theirs.sendall(sent)
            theirs.close()
            with pytest.raises(EOFError):
                Channel(ours).receive(5)
            with pytest.raises(EOFError):
                Channel(ours).send(bytes(1_000_000), 5)
