"""`jackfield` and `jackfield.core.api`: what they promise is there, and does not import torch."""

import ast
import subprocess
import sys
from pathlib import Path

import jackfield
from jackfield.core import api

ROOT = Path(__file__).parents[2]
WITHOUT_TORCH = """
import sys
import jackfield
from jackfield.core.api import *
from jackfield.core.host.sources import load_config
from jackfield.core.host.discover import discover_all
from jackfield.plugins.schedulers.fcfs import Fcfs
from jackfield.server.cli import main
load_config()
discover_all()
sys.exit("torch" in sys.modules)
"""


def test_all_names_exist() -> None:
    assert len(set(api.__all__)) == len(api.__all__)
    missing = [name for name in api.__all__ if not hasattr(api, name)]
    assert missing == []


def test_all_that_is_imported_is_public() -> None:
    tree = ast.parse((ROOT / "core" / "api" / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(api.__all__)


def test_names_of_the_package_exist() -> None:
    assert {"LLM", "AsyncLLM", "SamplingParams", "__version__"} <= set(jackfield.__all__)
    missing = [name for name in jackfield.__all__ if not hasattr(jackfield, name)]
    assert missing == []


def test_contract_and_command_line_load_without_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr or "torch was imported"
