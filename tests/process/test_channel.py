"""Messages between two ends of a socket."""

import socket
import threading
from collections.abc import Iterator

import pytest

from jackfield.core.process.channel import Channel

Pair = tuple[Channel, Channel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = map(Channel, socket.socketpair())
    yield one, other
    one.close(0.0)
    other.close(0.0)


def received(channel: Channel, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += channel.receive(5.0)
    return found


def test_messages_keep_their_order_and_their_borders(pair: Pair) -> None:
    sent = [b"", b"a", b"bc" * 1000, b"d"]
    for message in sent:
        pair[0].send(message)
    assert received(pair[1], 4) == sent


def test_nothing_comes_within_the_time(pair: Pair) -> None:
    assert pair[1].receive(0.0) == []


def test_sending_does_not_wait_for_a_reader(pair: Pair) -> None:
    sent = [bytes([number]) * 300_000 for number in range(20)]
    for message in sent:
        pair[0].send(message)  # far more than the system holds, and nobody reads yet
    assert received(pair[1], 20) == sent


def test_many_threads_send_whole_messages(pair: Pair) -> None:
    def send(letter: bytes) -> None:
        for _ in range(50):
            pair[0].send(letter * 20_000)

    threads = [threading.Thread(target=send, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    found = received(pair[1], 150)
    for thread in threads:
        thread.join()
    for letter in (b"a", b"b", b"c"):
        assert found.count(letter * 20_000) == 50


def test_the_end_of_the_other_side_is_told_after_what_it_said(pair: Pair) -> None:
    pair[0].send(b"last words")
    assert not pair[1].is_broken(0.0)
    pair[0].close(1.0)
    assert pair[1].is_broken(1.0)
    assert pair[1].receive(1.0) == [b"last words"]
    with pytest.raises(EOFError):
        pair[1].receive(1.0)


def test_sending_to_nobody_is_no_error(pair: Pair) -> None:
    pair[0].close(0.0)
    for _ in range(3):
        pair[1].send(b"x" * 300_000)
    with pytest.raises(EOFError):
        pair[1].receive(1.0)


def test_closing_waits_for_what_was_sent(pair: Pair) -> None:
    message = b"x" * 1_000_000
    pair[0].send(message)
    closing = threading.Thread(target=pair[0].close, args=(5.0,))
    closing.start()
    assert received(pair[1], 1) == [message]
    closing.join()
