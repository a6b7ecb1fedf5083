"""Compiles some kernels of quantized products, and prints what the loop of each has of what should
be in it, and of what should not. Without TRITON_INTERPRET.
"""

import json
import re

from cases_quant import AWQ, BLOCK, FINE, NARROW, tile
from compiling import compile_case

COUNTED = ("mma.sync", "ld.global.L1", "shfl.sync", "bar.sync", "shared")


def loop(ptx: str) -> str:
    """The body of the loop that multiplies, without what is around it."""
    labels = {match[1]: match.end() for match in re.finditer(r"^(\$\S+):", ptx, re.MULTILINE)}
    jumps = re.finditer(r"bra(?:\.uni)?\s+(\$\S+);", ptx)
    bodies = [ptx[labels[jump[1]] : jump.start()] for jump in jumps]
    return min((body for body in bodies if "mma.sync" in body), key=len)


def main() -> None:
    two = {**NARROW, "TILES": 2, "ROWS": 16}
    for arch in (80, 90):
        wanted = [tile(AWQ, 16, two, arch), tile((FINE, BLOCK)[arch == 90], 8, NARROW, arch)]
        for case in wanted:
            body = loop(compile_case(case, arch).ptx)
            counts = {name: body.count(name) for name in COUNTED}
            print(json.dumps({"name": case.name, "arch": arch, **counts}))


if __name__ == "__main__":
    main()
