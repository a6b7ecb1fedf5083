"""A process that compiles kernels: `python -m jackfield.plugins.kernels.triton.compile_worker`.

It reads a JSON list of what is wanted from its standard input, and needs no GPU.
"""

import json
import sys

from jackfield.plugins.kernels.triton.compiling import Wanted, compile_wanted


def main() -> None:
    """Compile all, one after the other."""
    for fields in json.load(sys.stdin):
        compile_wanted(Wanted(*fields))


if __name__ == "__main__":
    main()
