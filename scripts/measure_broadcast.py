#!/usr/bin/env python
"""What a step costs for being told to other ranks: `measure_broadcast.py [RANKS] [SEQUENCES]`.

Rank processes are stood in for by processes that only decode plans and note when they have. Times
are medians in microseconds: until the plan is handed over, and until the last rank can begin.
"""

import multiprocessing
import socket
import sys
import time
from multiprocessing.connection import Connection

from jackfield.core.engine.steps import BlockUpdate, Slice, StepPlan
from jackfield.core.process.channel import Channel
from jackfield.core.wire.plan import Plan, plan_message, plan_of
from jackfield.core.wire.ranks import decode_order, encode_rank

STEPS = 2000
PAUSE = 0.002


def plan_of_decodes(number: int, sequences: int) -> StepPlan:
    """Every sixteenth sequence has a new block."""
    plan = StepPlan(number, num_decodes=sequences)
    plan.slices = [
        Slice(10_000 + seat, seat, 1000 + number, 1, None, 1, False) for seat in range(sequences)
    ]
    plan.blocks = [BlockUpdate(seat, 60, [seat]) for seat in range(0, sequences, 16)]
    return plan


def follow(connection: socket.socket, results: Connection) -> None:
    """A rank that computes nothing."""
    channel, times = Channel(connection), []
    while len(times) < STEPS:
        for message in channel.receive(None):
            order = decode_order(message)
            assert isinstance(order, Plan)
            plan_of(order)
            times.append(time.perf_counter())
    results.send(times)


def main(others: int, sequences: int) -> None:
    """Print the figures."""
    context = multiprocessing.get_context("fork")
    channels, pipes, processes = [], [], []
    for _ in range(others):
        ours, theirs = socket.socketpair()
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=follow, args=(theirs, sender), daemon=True)
        process.start()
        channels.append(Channel(ours))
        pipes.append(receiver)
        processes.append(process)
    began, handed = [], []
    for number in range(STEPS):
        plan = plan_of_decodes(number, sequences)
        began.append(time.perf_counter())
        message = encode_rank(plan_message(plan, waits=False))
        for channel in channels:
            channel.send(message)
        handed.append(time.perf_counter())
        time.sleep(PAUSE)
    ready = [max(times) for times in zip(*(pipe.recv() for pipe in pipes), strict=True)]
    size = len(message)
    print(f"{others} other ranks, {sequences} decodes, {size} bytes a step")
    print(f"handed over {median(handed, began):.0f}, last rank ready {median(ready, began):.0f}")


def median(ends: list[float], starts: list[float]) -> float:
    """Of the differences, in microseconds."""
    found = sorted(end - start for end, start in zip(ends, starts, strict=True))
    return found[len(found) // 2] * 1e6


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    ranks, sequences = [*numbers, *(2, 256)[len(numbers) :]]
    main(ranks - 1, sequences)
