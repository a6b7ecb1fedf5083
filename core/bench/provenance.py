"""What was measured, and on what: so that two results can be compared later."""

import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import jackfield
from jackfield.core.assemble import Assembly
from jackfield.core.executors.device import choose_device

CPUINFO = Path("/proc/cpuinfo")
GIT_SECONDS = 10


def provenance(assembly: Assembly) -> dict[str, Any]:
    """Revision, versions, device, ranks, element type and stack of a loaded model."""
    summary = assembly.summary
    config = assembly.resolved.config
    return {
        "model": summary.model,
        "dtype": summary.dtype,
        "device": device_name(device_of(assembly)),
        "ranks": config.parallel.tensor,
        "threads": torch.get_num_threads(),
        "stack": stack_names(config.model_dump()),
        "git_revision": git_revision(Path(jackfield.__file__)),
        "versions": versions(),
    }


def device_of(assembly: Assembly) -> torch.device:
    """That of the model, or of its first rank."""
    return choose_device(assembly.resolved.config.engine.device)


def stack_names(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """The plugins that the configuration names, by kind."""
    scheduler, stack = config["scheduler"], config["scheduler"]["stack"]
    return {
        "scheduler": [one if isinstance(one, str) else json.dumps(one) for one in stack],
        "advisors": scheduler["advisors"],
        "cache": config["cache"]["stack"],
        "kernel": config["kernel"]["stack"],
    }


def versions() -> dict[str, str]:
    """Of Jackfield, torch and Python."""
    return {
        "jackfield": jackfield.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def device_name(device: torch.device) -> str:
    """The product's name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if CPUINFO.exists():
        for line in CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def git_revision(module: Path) -> str | None:
    """The commit of the source tree that `src/<package>/__init__.py` belongs to.

    Ends in "-dirty" if files differ from it; None for an installed package, or without git.
    """
    root = module.absolute().parents[2]
    if not (root / ".git").exists() or not (root / "pyproject.toml").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude", "*"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
