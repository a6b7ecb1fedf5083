"""Results of evaluations, on one screen."""

from typing import TYPE_CHECKING

from jackfield.server.table import table

if TYPE_CHECKING:
    from jackfield.core.evaluation.kv import Divergence, KvComparison
    from jackfield.core.evaluation.model import ModelComparison, ModelSide
    from jackfield.core.evaluation.task import TaskScore


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


def model_lines(result: "ModelComparison") -> str:
    """Both models, and how far they are apart."""
    sides = (result.model, result.reference)
    rows = [
        ("folder", *(one.model for one in sides)),
        ("weights", *(f"{one.weights}, computed in {one.dtype}" for one in sides)),
        ("products", *(", ".join(one.kernels) for one in sides)),
        ("perplexity", *(f"{one.perplexity:.4f}" for one in sides)),
        *_task_rows(sides),
    ]
    return "\n".join(
        [
            f"text    {result.tokens:,} tokens in {result.windows:,} windows",
            *_model_notices(sides),
            "",
            table(("", "model", "reference"), rows),
            "",
            f"KL(reference||model)      {result.mean_kl:.6f} nats per token, "
            f"99 of 100 below {result.p99_kl:.6f}",
            f"same most likely token    {result.top1_agreement:.2%}",
            f"largest logprob change    {result.max_logprob_difference:.4f}",
        ]
    )


def _task_rows(sides: "tuple[ModelSide, ModelSide]") -> list[tuple[str, ...]]:
    scores = [one.task for one in sides if one.task is not None]
    if not scores:
        return []
    return [
        ("right answers", *map(_score, scores)),
        ("right alone", *(f"{score.right_alone:,}" for score in scores)),
        ("cut off", *(f"{score.cut:,}" for score in scores)),
    ]


def _score(score: "TaskScore") -> str:
    return f"{score.right:,} of {score.questions:,} ({score.share:.1%})"


def _model_notices(sides: "tuple[ModelSide, ModelSide]") -> list[str]:
    """What only one of them is told, since the rest tells nothing of the difference."""
    model, reference = sides
    names = ("model", model, reference), ("reference", reference, model)
    return [
        f"notice {name}: {notice}"
        for name, one, other in names
        for notice in one.notices
        if notice not in other.notices
    ]
