"""Kernels that a process wants compiled, as others can compile them: source, types, constants.

What is compiled goes to Triton's cache on the disk, where whoever launches the kernel finds it: the
kernel's code, and the launcher, a small library in C for each order of types of arguments.
Neither this nor what it imports needs torch or a GPU.
"""

import hashlib
import json
from importlib import import_module
from typing import Any, NamedTuple

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.compiler import ASTSource, make_backend
from triton.runtime.cache import get_cache_manager
from triton.runtime.jit import JITFunction

PACKAGE = f"{__name__.rpartition('.')[0]}."


class Wanted(NamedTuple):
    """One kernel for one set of types and constants. data: as Triton writes them down."""

    module: str
    name: str
    data: str
    arch: int

    @property
    def target(self) -> GPUTarget:
        return GPUTarget("cuda", self.arch, 32)


class Source(NamedTuple):
    """What Triton compiles, and how."""

    source: ASTSource
    options: dict[str, Any]

    @property
    def launcher(self) -> str:
        """The launcher in C, which many kernels have in common."""
        constants = {_place(self.source, name): it for name, it in self.source.constants.items()}
        return str(driver.make_launcher(constants, dict(self.source.signature), None))


def is_ours(module: str) -> bool:
    """Whether its kernels are those of this plugin, which anybody can import by their names."""
    return module.startswith(PACKAGE)


def read(wanted: Wanted) -> Source:
    """The same in this process. Imports the kernel's module."""
    assert is_ours(wanted.module), f"{wanted.module} holds no kernels of this plugin"
    kernel = getattr(import_module(wanted.module), wanted.name)
    assert isinstance(kernel, JITFunction), f"{wanted.name} of {wanted.module} is no kernel"
    told = json.loads(wanted.data)
    constants = map(_constant, told["constant_vals"])
    constexprs = dict(zip(map(tuple, told["constant_keys"]), constants, strict=True))
    attributes = dict(zip(map(tuple, told["attrs_keys"]), told["attrs_vals"], strict=True))
    options = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in told["options"].items()
    }
    return Source(ASTSource(kernel, told["signature"], constexprs, attributes), options)


def compile_wanted(wanted: Wanted) -> None:
    """Compile it, unless the cache holds it."""
    source, options = read(wanted)
    triton.compile(source, target=wanted.target, options=options)


def build_launcher(wanted: Wanted) -> None:
    """Build what calls it, unless the cache holds it. It takes a compiler of C, and the library of
    the GPU's driver."""
    driver.compile_module_from_src(
        src=read(wanted).launcher,
        name="__triton_launcher",
        library_dirs=driver.library_dirs(),
        include_dirs=driver.include_dirs,
        libraries=driver.libraries,
    )


def is_compiled(wanted: Wanted) -> bool:
    """Whether the cache holds it."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.runtime.cache import get_cache_key

    source, options = read(wanted)
    backend = make_backend(wanted.target)
    parsed = backend.parse_options(options)
    variables = get_cache_invalidating_env_vars()
    key = get_cache_key(source, backend, parsed, env_vars=variables)
    manager = get_cache_manager(hashlib.sha256(key.encode()).hexdigest())
    name = f"{source.name[:150]}.json"
    return name in (manager.get_group(name) or {})


def _place(source: ASTSource, name: Any) -> Any:
    return (source.fn.arg_names.index(name),) if isinstance(name, str) else name


def _constant(value: Any) -> Any:
    if tl.dtype.is_dtype(value):
        return tl.dtype(value)
    if isinstance(value, dict) and "constexpr" in value:
        return tl.constexpr(value["constexpr"])
    return value
