"""Programs that exchange rows with those of the same number on the other ranks of a host.

Each program has a slab of memory that all ranks can read, in two halves, and a flag for each rank.
Row r is that of program r % PROGRAMS on every rank, so a program waits for nobody but the programs
of its number. All of them run at once: there are no more of them than the device has
multiprocessors, and so nobody waits for one that waits for room.

A program numbers its calls in the device's memory, by twos: the first number of a call is only
told where a call meets twice. So it does not matter whether a CUDA graph holds a launch, nor in
which order graphs are replayed, as long as all ranks do the same.

A half is never written while somebody reads it. Calls use halves in turn. Whoever writes a half in
call n + 2 has ended call n + 1, so it has seen all others tell a number of that call; and they tell
it only after call n, in which they read the half, has ended, since launches of a stream do not
overlap beyond `wait_for_previous`. A program is thus one call ahead of the slowest at most, and
numbers that are seen may be greater than those that are waited for.
"""

import triton
import triton.language as tl


@triton.jit
def slab_of(number, PROGRAMS: tl.constexpr, LANES: tl.constexpr, SLAB: tl.constexpr):
    """How many bytes behind the beginning of a rank's memory this program has its rows in the call
    of that number. Flags are in front."""
    return PROGRAMS * LANES * 8 + ((number // 2 % 2) * PROGRAMS + tl.program_id(0)) * SLAB


@triton.jit
def meet(
    peers_ptr,
    rank,
    number,
    RANKS: tl.constexpr,
    LANES: tl.constexpr,
):
    """All that this program has written is seen by those of the other ranks, and the other way
    round. Numbers only grow. The host can end the waiting: see `symmetric.leave`."""
    lane = tl.arange(0, LANES)
    there = lane < RANKS
    flags = tl.program_id(0) * LANES * 8
    theirs = tl.load(peers_ptr + lane, there, other=0) + flags + rank * 8
    ours = tl.load(peers_ptr + rank) + flags + lane * 8
    leaving_ptr = tl.load(peers_ptr + RANKS).to(tl.pointer_type(tl.int64), bitcast=True)
    # Whoever tells does it for all threads of the program: theirs come before the barrier.
    tl.debug_barrier()
    theirs_ptr = theirs.to(tl.pointer_type(tl.int64), bitcast=True)
    tl.atomic_xchg(theirs_ptr, number, there, sem="release", scope="sys")
    ours_ptr = ours.to(tl.pointer_type(tl.int64), bitcast=True)
    turns = 0
    waits = True
    while waits:
        turns += 1
        # Flags are raised by this, rather than looked beside, so that all threads leave in the
        # same turn: what an atomic operation gives is the same for all.
        least = tl.load(leaving_ptr, turns % 1024 == 0, other=0, volatile=True)
        seen = tl.atomic_max(ours_ptr, least, there, sem="acquire", scope="sys")
        waits = tl.min(tl.where(there, seen, number)) < number
    tl.debug_barrier()


@triton.jit
def row_of(peers_ptr, rank, slab, like_ptr):
    """Where a rank has the first row of this program."""
    address = tl.load(peers_ptr + rank) + slab
    return tl.multiple_of(address.to(like_ptr.dtype, bitcast=True), 16)


@triton.jit
def total_of(
    peers_ptr,
    slab,
    row,
    like_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    RANKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    TWO: tl.constexpr,
):
    """The sum of a row over ranks, in float32 and in the order of ranks, so that it has the same
    bits on each; rounded once. TWO: `sum_share` has made it, where the row's owner keeps it."""
    column = tl.arange(0, BLOCK)
    mask = column < WIDTH
    turn = row // PROGRAMS
    place = turn * WIDTH + column
    if TWO:
        # A program's rows go round all ranks, and those of programs begin with different ones.
        owner = row_of(peers_ptr, (turn + tl.program_id(0)) % RANKS, slab, like_ptr)
        total = tl.load(owner + place, mask, other=0.0, cache_modifier=".cg")
    else:
        sums = tl.zeros((BLOCK,), tl.float32)
        for rank in tl.static_range(RANKS):
            address = tl.load(peers_ptr + rank) + slab
            theirs = tl.multiple_of(address.to(like_ptr.dtype, bitcast=True), 16)
            sums += tl.load(theirs + place, mask, other=0.0, cache_modifier=".cg").to(tl.float32)
        total = sums.to(like_ptr.dtype.element_ty)
    return total


@triton.jit
def sum_share(
    peers_ptr,
    rank,
    slab,
    rows,
    like_ptr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    RANKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Sums of the rows that this rank owns, in the place of its own ones, which no other rank
    reads before it is told of the sums."""
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    own = row_of(peers_ptr, rank, slab, like_ptr)
    first = program + (rank + RANKS - program % RANKS) % RANKS * PROGRAMS
    for row in range(first, rows, RANKS * PROGRAMS):
        total = total_of(peers_ptr, slab, row, like_ptr, WIDTH, BLOCK, RANKS, PROGRAMS, False)
        tl.store(own + row // PROGRAMS * WIDTH + column, total, column < WIDTH)
