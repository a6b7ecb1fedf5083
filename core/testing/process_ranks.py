"""Ranks that are processes of this host, connected by gloo, to test what only those can show."""

import multiprocessing
import pickle
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from typing import Any

from jackfield.core.api import Ranks

SECONDS = 120.0


def on_processes(size: int, script: Path, folder: Path, *arguments: Any) -> list[Any]:
    """What the function `work` of a script gives on each rank for its `Ranks` and the arguments.

    folder: an empty one. Raises RuntimeError with what a rank raised. Processes are forked off one
    that has imported torch and nothing else, since imports take longer than most tests.
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed", __name__])
    processes = [
        context.Process(target=_member, args=(rank, size, script, folder, arguments), daemon=True)
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(SECONDS)
    for process in processes:
        if process.is_alive():
            process.kill()
    return [_result(folder / str(rank)) for rank in range(size)]


def _result(path: Path) -> Any:
    failed, result = pickle.loads(path.read_bytes()) if path.exists() else (True, "it gave nothing")
    if failed:
        raise RuntimeError(f"rank {path.name}: {result}")
    return result


def _member(rank: int, size: int, script: Path, folder: Path, arguments: tuple[Any, ...]) -> None:
    import torch
    import torch.distributed as distributed

    torch.set_num_threads(1)
    store = f"file://{folder / 'store'}"
    found: tuple[bool, Any]
    try:
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
        work: Callable[..., Any] = run_path(str(script))["work"]
        with torch.inference_mode():
            found = False, work(Ranks(rank, size, distributed.group.WORLD), *arguments)
    except BaseException as error:
        found = True, repr(error)
    (folder / str(rank)).write_bytes(pickle.dumps(found))
    # Others may still wait for this rank, and would hear of it only when it has gone.
    if not found[0]:
        distributed.destroy_process_group()
