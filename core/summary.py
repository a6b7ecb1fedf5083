"""What was started, on one screen."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from jackfield import __version__
from jackfield.core.host.discover import Found
from jackfield.core.host.stack import Stack
from jackfield.core.kv.sizing import GIB

if TYPE_CHECKING:  # whoever shows a summary need not load what made it
    from jackfield.core.executors.loading import Loaded, Order


@dataclass(frozen=True, slots=True)
class Summary:
    """Decisions of the start. notices: every fast path that was lost, and who caused it."""

    version: str
    model: str
    architecture: str
    parameters: int
    dtype: str
    device: str
    max_model_len: int
    eos_ids: list[int]
    sampling: dict[str, Any]
    plugins: list[str]
    operations: dict[str, str]
    block_size: int
    num_blocks: int
    kv_tokens: int
    kv_bytes: int
    kv_bytes_per_token: int
    kv_encoding: str
    max_num_seqs: int
    max_num_batched_tokens: int
    full_context_concurrency: float
    ready_seconds: float
    notices: list[str]

    @staticmethod
    def of(
        order: "Order",
        loaded: "Loaded",
        stack: Stack,
        model: Found,
        eos_ids: frozenset[int],
        sampling: Mapping[str, Any],
        further: Sequence[str],
        seconds: float,
    ) -> "Summary":
        """Collect what the parts decided. further: notices of others."""
        limits = loaded.limits
        tokens = loaded.num_blocks * order.block_size
        return Summary(
            version=__version__,
            model=str(order.folder.path),
            architecture=model.name,
            parameters=order.spec.num_parameters,
            dtype=str(order.dtype).removeprefix("torch."),
            device=_device(order),
            max_model_len=limits.max_model_len,
            eos_ids=sorted(eos_ids),
            sampling=dict(sampling),
            plugins=[_plugin(found) for found in (*stack.versions, model)],
            operations=dict(loaded.table.owners),
            block_size=order.block_size,
            num_blocks=loaded.num_blocks,
            kv_tokens=tokens,
            kv_bytes=loaded.pool_bytes,
            kv_bytes_per_token=loaded.bytes_per_token,
            kv_encoding=loaded.encoding or str(order.dtype).removeprefix("torch."),
            max_num_seqs=limits.max_seqs,
            max_num_batched_tokens=limits.max_tokens,
            full_context_concurrency=round(tokens / limits.max_model_len, 1),
            ready_seconds=round(seconds, 2),
            notices=[*_notices(order, loaded), *further],
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Plain text, one fact a line."""
        by_owner: dict[str, list[str]] = {}
        for operation, owner in self.operations.items():
            by_owner.setdefault(owner, []).append(operation)
        kernels = "; ".join(f"{owner}: {', '.join(ops)}" for owner, ops in by_owner.items())
        return [
            f"Jackfield {self.version}, ready in {self.ready_seconds} s",
            f"model       {self.model}",
            f"            {self.architecture}, {self.parameters / 1e6:,.0f} M parameters, "
            f"{self.dtype} on {self.device}, context {self.max_model_len:,}",
            f"plugins     {', '.join(self.plugins)}",
            f"kernels     {kernels}",
            f"KV cache    {self.kv_tokens:,} tokens in {self.num_blocks:,} blocks of "
            f"{self.block_size}, {self.kv_bytes / GIB:.2f} GiB",
            f"            {self.kv_bytes_per_token:,} bytes per token ({self.kv_encoding})",
            f"concurrency {self.max_num_seqs} sequences, {self.full_context_concurrency:g} at full "
            f"context, {self.max_num_batched_tokens:,} tokens a step",
            f"ends at     token ids {', '.join(map(str, self.eos_ids)) or 'none'}",
            f"sampling    {_settings(self.sampling) or 'nothing is preset'}",
            *(f"notice      {notice}" for notice in self.notices),
        ]


def _device(order: "Order") -> str:
    size = order.place.shard.size
    return str(order.device) if size == 1 else f"{size} ranks of {order.device.type}"


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _plugin(found: Found) -> str:
    kind = found.kind.removesuffix("s")
    return f"{kind} {found.name} ({found.distribution} {found.version})"


def _notices(order: "Order", loaded: "Loaded") -> list[str]:
    passed = _passed_over(loaded)
    operations = loaded.table.operations
    notes = [
        f"{name}: {note}"
        for name in loaded.table.owners
        for note in getattr(getattr(operations, name), "notes", ())
    ]
    context = loaded.limits.max_model_len
    if context < order.spec.max_positions:
        notes.append(f"context is {context:,} of {order.spec.max_positions:,} positions")
    ignored = order.folder.ignored_generation_keys
    if ignored:
        notes.append(f"generation_config.json: no effect have {', '.join(ignored)}")
    return [*passed, *loaded.notices, *notes]


def _passed_over(loaded: "Loaded") -> list[str]:
    """One sentence per plugin and reason, whatever the number of operations."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for entry in loaded.table.passed:
        if entry.operation not in loaded.table.owners:
            continue  # nobody need serve it; what is lost without it is told by who wants it
        grouped.setdefault((entry.plugin, "; ".join(entry.reasons)), []).append(entry.operation)
    return [
        f"kernel {plugin} does not serve {', '.join(operations)}: {reasons}"
        for (plugin, reasons), operations in grouped.items()
    ]
