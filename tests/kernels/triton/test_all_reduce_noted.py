"""Sums over ranks are noted like other launches, so that a rank can rehearse alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("all_reduce_aside.py")
KERNELS = ("all_reduce_add_rms_norm_kernel", "all_reduce_kernel")


def test_nothing_is_launched_and_nothing_is_missing(tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    places = os.pathsep.join([str(SCRIPT.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": places}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["names"] == sorted(2 * KERNELS), "in one way and the other"
    assert told["compiled"] and told["alike"]
    assert told["late"] == []
    assert told["launched"] == [] and sorted(told["afterwards"]) == sorted(KERNELS)
    assert told["calls"] == 0
