"""The `config_groups` of compressed-tensors."""

from jackfield.core.api.quant import QuantKind
from jackfield.core.checkpoint.quant_names import EVERY_PRODUCT, Rule
from jackfield.core.checkpoint.quant_scheme import QuantLayout, Scheme
from jackfield.core.checkpoint.quant_section import QuantSection

METHOD = "compressed-tensors"
FORMATS = {
    "pack-quantized": (QuantLayout.PACKED, {"int": {4: QuantKind.INT4, 8: QuantKind.INT8}}),
    "int-quantized": (QuantLayout.PLAIN, {"int": {8: QuantKind.INT8}}),
    "float-quantized": (QuantLayout.PLAIN, {"float": {8: QuantKind.FP8}}),
    "naive-quantized": (
        QuantLayout.PLAIN,
        {"int": {8: QuantKind.INT8}, "float": {8: QuantKind.FP8}},
    ),
}
"""Name -> which tensors there are, and by type and bits what they hold."""
STRATEGIES = {"tensor": "", "channel": "", "group": "group_size", "block": "block_structure"}
"""Name -> the key that says how many weights share a scale."""


def compressed_rules(section: QuantSection) -> tuple[Rule, ...]:
    """One per group, those that name modules before one that is for all products.

    Raises ModelError that names the key for what is not served.
    """
    groups = section.section("config_groups")
    rules = [_rule(section, groups.section(name)) for name in groups.entries()]
    return tuple(sorted(rules, key=lambda rule: EVERY_PRODUCT in rule.targets))


def _rule(section: QuantSection, group: QuantSection) -> Rule:
    owner = group if group.has("format") else section
    layout, types = owner.one_of("format", FORMATS)
    weights = group.section("weights")
    kind = weights.one_of("num_bits", weights.one_of("type", types, "int"))
    size: int | None = None
    rows = 1
    key = weights.one_of("strategy", STRATEGIES, _default_strategy(weights))
    if key == "group_size":
        size = weights.group(key)
    elif key:
        rows, size = weights.block(key)
    scheme = Scheme(
        METHOD, layout, kind, size, rows, weights.flag("symmetric", True),
        act_order=_act_order(weights),
    )  # fmt: skip
    return Rule(group.names("targets"), scheme)


def _default_strategy(weights: QuantSection) -> str:
    return "group" if weights.has("group_size") else "tensor"


def _act_order(weights: QuantSection) -> bool:
    """Only "group" leaves inputs of a group apart from each other."""
    orders = {"group": True, "dynamic": True, "weight": False, "static": False, None: False}
    return weights.one_of("actorder", {**orders, True: True, False: False})
