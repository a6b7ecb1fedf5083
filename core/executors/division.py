"""How a model divides among ranks: which numbers of them do, and what each of them serves."""

from jackfield.core.api import ConfigError, ModelSpec, Shard

MOST_RANKS = 64
"""Numbers of ranks that are told, at most."""


def rank_spec(spec: ModelSpec, shard: Shard) -> ModelSpec:
    """The model as one rank's kernels and its cache see it: with the heads that it has."""
    heads, kv_heads = shard.part(spec.num_heads), shard.part(spec.num_kv_heads)
    return spec._replace(num_heads=len(heads), num_kv_heads=len(kv_heads))


def check_ranks(spec: ModelSpec, size: int, *, whole_experts: bool = False) -> None:
    """Raise `ConfigError` that says why the model cannot be divided so, and how it can.

    whole_experts: as in `Shard`. Nothing is read for it.
    """
    if size == 1:
        return
    reasons = _reasons(spec, size, whole_experts)
    if reasons:
        raise ConfigError(
            f"the model cannot be divided among {size} ranks: {', '.join(reasons)}; "
            f"choose a tensor_parallel_size of {_listed(rank_counts(spec, whole_experts))}"
        )


def rank_counts(spec: ModelSpec, whole_experts: bool = False) -> list[int]:
    """Numbers of ranks that the model divides among, up to 64."""
    sizes = range(2, MOST_RANKS + 1)
    return [1, *(size for size in sizes if not _reasons(spec, size, whole_experts))]


def _reasons(spec: ModelSpec, size: int, whole_experts: bool) -> list[str]:
    if not spec.divides:
        return ["its plugin does not serve parts of it"]
    found = [] if spec.num_heads % size == 0 else [f"it has {spec.num_heads} attention heads"]
    kv_heads = spec.num_kv_heads
    if kv_heads % size and size % kv_heads:
        found.append(f"it has {kv_heads} heads of keys and values")
    found += [f"its {name} is {width}" for name, width in spec.widths if width % size]
    if spec.num_experts and whole_experts and spec.num_experts < size:
        found.append(f"it has {spec.num_experts} experts, and each rank needs one")
    if spec.num_experts and not whole_experts and spec.expert_width % size:
        found.append(f"the width of its experts is {spec.expert_width}")
    return found


def _listed(sizes: list[int]) -> str:
    *most, last = map(str, sizes)
    return f"{', '.join(most)} or {last}" if most else last
