"""Sizes of the model: its context, and how it divides."""

from collections.abc import Mapping
from typing import Any

from jackfield.core.api import ModelSpec
from jackfield.core.doctor.finding import Finding, note, ok
from jackfield.core.executors.division import rank_counts

POSITIONS = ("max_position_embeddings", "seq_length")


def check_context(config: Mapping[str, Any], spec: ModelSpec, wanted: int | None) -> Finding:
    """wanted: model.max_model_len."""
    trained = next((config[key] for key in POSITIONS if isinstance(config.get(key), int)), None)
    form = _rope(config)
    how = f", by rope scaling {form!r} of {trained:,}" if form and trained else ""
    limit = "" if wanted is None else f"; model.max_model_len sets {wanted:,}"
    return ok("context", f"The model is made for {spec.max_positions:,} positions{how}{limit}.")


def _rope(config: Mapping[str, Any]) -> str:
    section = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(section, Mapping):
        return ""
    form = str(section.get("rope_type") or section.get("type") or "default")
    return "" if form == "default" else form


def check_ranks(spec: ModelSpec) -> Finding:
    """Among how many ranks weights can be divided."""
    ranks = rank_counts(spec)
    widths = "".join(f", {name} {width:,}" for name, width in spec.widths)
    sizes = f"{spec.num_heads} heads, {spec.num_kv_heads} of keys and values{widths}"
    if ranks == [1]:
        return note(
            "ranks",
            f"The model ({sizes}) does not divide among tensor-parallel ranks; serve it on one "
            f"device.",
        )
    listed = ", ".join(map(str, ranks))
    return ok("ranks", f"The model ({sizes}) divides among {listed} tensor-parallel ranks.")
