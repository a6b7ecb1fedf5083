"""What a config.json says of the weights of a quantized checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jackfield.core.api.errors import ModelError, nearest
from jackfield.core.api.quant import QuantKind
from jackfield.core.checkpoint.quant_compressed import compressed_rules
from jackfield.core.checkpoint.quant_names import Rule, names_module
from jackfield.core.checkpoint.quant_scheme import QuantLayout, Scheme
from jackfield.core.checkpoint.quant_section import QuantSection


class QuantPlan(NamedTuple):
    """Which weights are quantized, and how. rules: the first that is for a weight counts.

    plain: names of modules, or of parts of their paths, whose weights are not.
    """

    method: str
    rules: tuple[Rule, ...]
    plain: tuple[str, ...] = ()

    def scheme(self, module: str) -> Scheme | None:
        """That of a weight if it is quantized; whether it is, is up to the files. None = it must
        not be."""
        if any(names_module(name, module) for name in self.plain):
            return None
        return next((rule.scheme for rule in self.rules if rule.is_for(module)), None)

    @property
    def layouts(self) -> frozenset[QuantLayout]:
        return frozenset(rule.scheme.layout for rule in self.rules)


def read_quant_plan(config: Mapping[str, Any]) -> QuantPlan | None:
    """From `quantization_config`; None = the checkpoint is not quantized.

    Raises ModelError that names the key for what is not served, and what is.
    """
    content = config.get("quantization_config")
    if content is None:
        return None
    section = QuantSection(content)
    method = section.text("quant_method", "")
    if method not in METHODS:
        raise ModelError(
            f"{section.where('quant_method')} is {method!r}; served are "
            f"{', '.join(sorted(METHODS))}. {nearest(method, METHODS)}"
        )
    return METHODS[method](section)


def _awq(section: QuantSection) -> QuantPlan:
    section.one_of(section.first("bits", "w_bit"), {4: None})
    section.one_of("version", {"gemm": None, "GEMM": None}, "gemm")
    section.one_of("zero_point", {True: None}, True)
    group = section.group(section.first("group_size", "q_group_size"))
    scheme = Scheme("awq", QuantLayout.AWQ, QuantKind.INT4, group, symmetric=False)
    return _everywhere(scheme, section.names("modules_to_not_convert"))


def _gptq(section: QuantSection) -> QuantPlan:
    kind = section.one_of("bits", {4: QuantKind.INT4, 8: QuantKind.INT8})
    shift = section.one_of("checkpoint_format", {"gptq": 1, "gptq_v2": 0, None: 1})
    scheme = Scheme(
        "gptq", QuantLayout.GPTQ, kind, section.group("group_size"),
        symmetric=section.flag("sym", True), zero_shift=shift,
        act_order=section.flag("desc_act", False),
    )  # fmt: skip
    return _everywhere(scheme, section.names("modules_to_not_convert") + _excluded(section))


def _excluded(section: QuantSection) -> tuple[str, ...]:
    """`dynamic` excludes modules by regular expressions, or changes how they are quantized."""
    if not section.has("dynamic"):
        return ()
    rules = section.section("dynamic").entries()
    if not all(rule.startswith("-:") for rule in rules):
        section.refuse("dynamic", "rules that exclude modules, which begin with '-:'")
    return tuple(f"re:{rule.removeprefix('-:')}" for rule in rules)


def _fp8(section: QuantSection) -> QuantPlan:
    section.one_of("fmt", {"e4m3": None, "float8_e4m3fn": None}, "e4m3")
    plain = section.names("modules_to_not_convert") + section.names("ignored_layers")
    scheme = Scheme("fp8", QuantLayout.PLAIN, QuantKind.FP8, None)
    if section.has("weight_block_size"):
        rows, group = section.block("weight_block_size")
        scheme = scheme._replace(rows=rows, group=group)
    return _everywhere(scheme, plain)


def _compressed(section: QuantSection) -> QuantPlan:
    if section.has("sparsity_config"):
        section.section("sparsity_config").one_of("format", {"dense": None, None: None})
    rules = compressed_rules(section)
    return QuantPlan("compressed-tensors", rules, section.names("ignore"))


def _everywhere(scheme: Scheme, plain: Sequence[str]) -> QuantPlan:
    return QuantPlan(scheme.method, (Rule(("Linear",), scheme),), tuple(plain))


METHODS: Mapping[str, Callable[[QuantSection], QuantPlan]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "compressed-tensors": _compressed,
}
