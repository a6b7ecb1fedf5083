"""What passes between the first rank of an engine and the others, as msgpack arrays.

The first rank orders; the others answer only where something is asked for, ends, or fails.
"""

from typing import Any

import msgspec
from msgspec import Struct

from jackfield.core.host.origin import Origin
from jackfield.core.kv.transfers import Transfer, TransferEnd
from jackfield.core.wire.codec import plain
from jackfield.core.wire.messages import Failed
from jackfield.core.wire.plan import Plan, Sample


class Rendezvous(Struct, array_like=True, frozen=True):
    """Where the ranks find each other, and how many seconds they may take."""

    host: str
    port: int
    timeout: float


class StartRank(Struct, tag="start", array_like=True, frozen=True):
    """The first message to a rank. config, origins: as in `Start`. path: of the model on the first
    rank's host; "" = the rank finds it by its name. local_rank: among those of its host."""

    config: dict[str, Any]
    origins: dict[str, Origin]
    path: str
    streamed: bool
    rank: int
    size: int
    local_rank: int
    rendezvous: Rendezvous


class Comes(Struct, tag="comes", array_like=True, frozen=True):
    """The first message of a rank of another node. path: of the model there. config: that its
    command was given."""

    node_rank: int
    local_rank: int
    path: str
    config: dict[str, Any]


class Agreed(Struct, tag="agreed", array_like=True, frozen=True):
    """What all ranks say of one thing, in their order."""

    name: str
    values: list[Any]


class Logits(Struct, tag="logits", array_like=True, frozen=True):
    """Compute the step's logits, for an evaluation on the first rank."""

    plan: Plan


class Copy(Struct, tag="copy", array_like=True, frozen=True):
    """Start transfers."""

    orders: list[Transfer]


class Cancel(Struct, tag="cancel", array_like=True, frozen=True):
    """Give transfers up. The answer is `GivenUp`."""

    numbers: list[int]


class Release(Struct, tag="release", array_like=True, frozen=True):
    """Give memory that nobody uses back to the device."""


class Stop(Struct, tag="stop", array_like=True, frozen=True):
    """Give everything back, and end."""


class Says(Struct, tag="says", array_like=True, frozen=True):
    """What this rank says of one thing. The answer is `Agreed`."""

    name: str
    value: Any


class Ready(Struct, tag="ready", array_like=True, frozen=True):
    """The rank waits for steps."""


class Alive(Struct, tag="alive", array_like=True, frozen=True):
    """Sent a few times a second. step: the last that was begun. busy: seconds since it began what
    it was told last, 0 = it waits."""

    step: int
    busy: float


class Stumbled(Struct, tag="stumbled", array_like=True, frozen=True):
    """A step raised here. If it did so on all ranks, they go on."""

    step: int
    error: str


class Ended(Struct, tag="ended", array_like=True, frozen=True):
    """Transfers have ended here."""

    ends: list[TransferEnd]


class GivenUp(Struct, tag="given_up", array_like=True, frozen=True):
    """The answer to `Cancel`."""

    numbers: list[int]


RankOrder = StartRank | Agreed | Plan | Sample | Logits | Copy | Cancel | Release | Stop
RankNews = Comes | Says | Failed | Ready | Alive | Stumbled | Ended | GivenUp

_encoder = msgspec.msgpack.Encoder(enc_hook=plain)
_orders: msgspec.msgpack.Decoder[RankOrder] = msgspec.msgpack.Decoder(RankOrder)
_news: msgspec.msgpack.Decoder[RankNews] = msgspec.msgpack.Decoder(RankNews)


def encode_rank(message: RankOrder | RankNews) -> bytes:
    """One message as msgpack."""
    return _encoder.encode(message)


def decode_order(data: bytes) -> RankOrder:
    """A message to a rank. Raises `msgspec.DecodeError`."""
    return _orders.decode(data)


def decode_rank_news(data: bytes) -> RankNews:
    """A message from a rank. Raises `msgspec.DecodeError`."""
    return _news.decode(data)
