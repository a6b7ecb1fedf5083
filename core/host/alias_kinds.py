"""What kind of value each alias takes, for front ends that read aliases as text."""

from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from jackfield.core.host.aliases import FIXED, NEGATED, PLAIN
from jackfield.core.host.config import SECTIONS
from jackfield.core.host.origin import Key, dotted
from jackfield.core.host.stack_edits import KV_FORMATS


class AliasKind(NamedTuple):
    """type: str, int, float or bool. choices: all values, where they can be listed.

    meaning: one sentence. fixed: the alias has one value that changes nothing.
    """

    type: type
    choices: tuple[str, ...]
    meaning: str
    fixed: bool = False


OTHERS: Mapping[str, AliasKind] = {
    "block_size": AliasKind(int, (), "Sets cache.paged.block_size."),
    "kv_cache_memory": AliasKind(str, (), "Sets cache.memory."),
    "kv_cache_memory_bytes": AliasKind(str, (), "Sets cache.memory."),
    "scheduling_policy": AliasKind(str, ("fcfs", "priority"), "Sets scheduler.stack."),
    "enable_prefix_caching": AliasKind(bool, (), "Edits cache.stack: 'prefix' is in it, or not."),
    "kv_cache_dtype": AliasKind(
        str, ("auto", *KV_FORMATS), "Edits cache.stack: adds 'fp8', with this format."
    ),
    "swap_space": AliasKind(float, (), "Edits cache.stack: adds 'swap' with that many GiB."),
}


def alias_kinds() -> dict[str, AliasKind]:
    """The kind of every alias, in the order of `alias_names`."""
    plain = {name: OTHERS.get(name) or _of_key(key) for name, key in PLAIN.items()}
    negated = {
        name: AliasKind(bool, (), f"The opposite of {dotted(key)}.")
        for name, key in NEGATED.items()
    }
    fixed = {
        name: AliasKind(type(rule.accepted[0]), (), rule.otherwise, fixed=True)
        for name, rule in FIXED.items()
    }
    return {**plain, **negated, **OTHERS, **fixed}


def _of_key(key: Key) -> AliasKind:
    section, name = key
    annotation = SECTIONS[section].model_fields[name].annotation
    return AliasKind(*_value_type(annotation), f"Sets {dotted(key)}.")


def _value_type(annotation: Any) -> tuple[type, tuple[str, ...]]:
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    plain = [one for one in get_args(annotation) if one is not NoneType] or [annotation]
    assert len(plain) == 1 and isinstance(plain[0], type), f"an alias of {annotation}"
    return plain[0], ()
