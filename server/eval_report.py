"""Results of evaluations, on one screen."""

from typing import TYPE_CHECKING

from jackfield.server.table import table

if TYPE_CHECKING:
    from jackfield.core.evaluation.kv import Divergence, KvComparison


def kv_lines(result: "KvComparison", names: tuple[str, str]) -> str:
    """What was compared, both sides, and how far they are apart. names: of the configurations."""
    a, b = result.a, result.b
    rows = [
        ("config", *names),
        ("stored as", a.encoding, b.encoding),
        ("attention", a.kernel, b.kernel),
        ("bytes per token", f"{a.bytes_per_token:,}", f"{b.bytes_per_token:,}"),
        ("perplexity", f"{result.perplexity_a:.4f}", f"{result.perplexity_b:.4f}"),
    ]
    notices = [
        f"notice {side}: {notice}" for side, one in (("A", a), ("B", b)) for notice in one.notices
    ]
    return "\n".join(
        [
            f"model   {result.model}",
            f"text    {result.tokens:,} tokens in pieces of {result.piece}, then "
            f"{result.greedy_tokens} greedy ones",
            *notices,
            "",
            table(("", "A", "B"), rows),
            "",
            f"KL(A||B)                  {result.mean_kl:.6f} nats per token",
            f"same most likely token    {result.top1_agreement:.2%}",
            f"largest logprob change    {result.max_logprob_difference:.4f}",
            f"first other greedy token  {_divergence(result.divergence, result.greedy_tokens)}",
        ]
    )


def _divergence(found: "Divergence | None", count: int) -> str:
    if found is None:
        return f"none in {count}"
    return (
        f"number {found.index + 1} of {count}: {found.text_a!r} ({found.token_a}) in A, "
        f"{found.text_b!r} ({found.token_b}) in B"
    )
