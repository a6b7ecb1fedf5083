"""Which plugins another process of this engine should have, told without importing any."""

from jackfield.core.host.config import Config
from jackfield.core.host.disciplines import LEAF
from jackfield.core.host.discover import Catalogues
from jackfield.core.host.fingerprint import Fingerprint
from jackfield.core.host.loader import choose
from jackfield.core.host.ordering import branches_of, names_in


def expected_fingerprint(
    config: Config, catalogues: Catalogues, theirs: Fingerprint
) -> Fingerprint:
    """The fingerprint of what the configuration names and what is installed here.

    Only an import tells whether the stack needs the leaf that is added to it, so that is taken
    from the other process.
    """
    schedulers = names_in(config.scheduler.stack)
    names = [plugin.name for plugin in theirs.plugins if plugin.kind == "schedulers"]
    if LEAF in names and LEAF not in {name.rpartition(":")[2] for name in schedulers}:
        schedulers.insert(names.index(LEAF), LEAF)
    stacks = [
        ("schedulers", [*schedulers, *config.scheduler.advisors]),
        ("caches", [*config.cache.stack, *config.cache.all_evictors]),
        ("kernels", config.kernel.stack),
    ]
    found = (choose(kind, name, catalogues[kind]) for kind, stack in stacks for name in stack)
    return Fingerprint.of(found, branches_of(config.scheduler.stack))
