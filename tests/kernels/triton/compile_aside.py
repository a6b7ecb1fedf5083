"""Has kernels compiled by other processes, and prints which the cache holds before and after.

Run without TRITON_INTERPRET, with a cache of its own.
"""

import json

from cases_elementwise import cases
from compiling import Case, attributes_of
from triton.backends.compiler import GPUTarget
from triton.compiler import make_backend
from triton.runtime.jit import serialize_specialization_data

from jackfield.plugins.kernels.triton.compiling import Wanted, is_compiled
from jackfield.plugins.kernels.triton.rehearsal import FEW, compile_all

ARCH = 90


def wanted_of(case: Case) -> Wanted:
    """As Triton itself writes down what a launch needs."""
    backend = make_backend(GPUTarget("cuda", ARCH, 32))
    options = backend.parse_options({"num_warps": case.num_warps, "num_stages": case.num_stages})
    names = case.kernel.arg_names
    constants = {(names.index(name),): value for name, value in case.constexprs.items()}
    signature = {name: kind.split(":")[0] for name, kind in case.signature.items()}
    data = serialize_specialization_data(
        case.kernel._fn_name, signature, constants, attributes_of(case), options, case.name
    )
    function = case.kernel.fn
    return Wanted(function.__module__, function.__qualname__, data, ARCH)


if __name__ == "__main__":
    wanted = [wanted_of(case) for case in cases()[:FEW]]
    before = [is_compiled(one) for one in wanted]
    compile_all(wanted)
    print(json.dumps([before, [is_compiled(one) for one in wanted]]))
