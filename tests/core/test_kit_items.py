"""The laws as a command: no test file, readable names, and failures that say what to do."""

import subprocess
import sys
from pathlib import Path

import pytest

from jackfield.core.api import PluginContractError, PluginNotFound
from jackfield.core.testing.law_items import configured, find
from jackfield.core.testing.neighbours import MADE

MINE = '''
from collections.abc import Sequence
from jackfield.core.api import Claim, Discipline, Fcfs, PolicyConfig


class Config(PolicyConfig):
    sign: int = 1


class Mine(Discipline[None]):
    """First come, or last come, first served; it claims the former."""

    Config = Config
    claims = (Fcfs("all"),)

    def key(self, request, now):
        return self.config.sign * request.arrival, request.handle


class Moody(Mine):
    claims = ()

    def key(self, request, now):
        return None if request.num_prompt_tokens == 3 else 0.0
'''


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(MINE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:asyncio"]
    return subprocess.run(
        [*command, "--jackfield-examples", "12", *options],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_every_law_is_an_item(tmp_path: Path) -> None:
    done = run(tmp_path, "--jackfield-scheduler=mine:Mine", "--collect-only", "-q")
    names = [line.split("::")[1] for line in done.stdout.splitlines() if "::" in line]
    assert names[:2] == ["order[alone]", "collapse[alone]"], done.stdout + done.stderr
    assert {"contract[alone]", "contract[in-stacks]", "determinism"} <= set(names)
    assert names[-1] == "claim[1 Fcfs]"
    assert len(names) == len(set(names)) > 20


def test_a_good_policy_passes_and_k_chooses(tmp_path: Path) -> None:
    done = run(tmp_path, "--jackfield-scheduler", "mine.Mine", "-q", "-k", "contract or claim")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_a_failure_tells_law_life_and_where_to_look(tmp_path: Path) -> None:
    done = run(
        tmp_path, "--jackfield-scheduler=mine:Mine", "--jackfield-config", '{"sign": -1}',
        "-k", "claim or determinism",
    )  # fmt: skip
    shown = done.stdout
    assert "1 failed, 1 passed" in shown, shown + done.stderr
    assert "jackfield[mine:Mine]::claim[1 Fcfs]" in shown
    assert "law:     What the policy claims: Nobody is admitted while a request that" in shown
    assert "broken:  r" in shown and "it arrived earlier" in shown
    assert "Story(" in shown and "look at: " in shown
    assert "Traceback" not in shown


def test_a_fault_names_the_method(tmp_path: Path) -> None:
    done = run(tmp_path, "--jackfield-scheduler=mine:Moody", "-k", "contract and alone")
    assert "moody: key returned None, which is no rank" in done.stdout, done.stdout
    assert "prompt=3" in done.stdout, "the shortest life has one request"


def test_test_files_run_beside_it(tmp_path: Path) -> None:
    (tmp_path / "test_more.py").write_text("def test_more(jackfield_scheduler): pass\n")
    done = run(tmp_path, "--jackfield-scheduler=fcfs", "-q", "-k", "more or collapse")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--jackfield-scheduler=nowhere:Mine"], "importing it gave ModuleNotFoundError"),
        (["--jackfield-scheduler=mine:Nobody"], "importing it gave AttributeError"),
        (["--jackfield-scheduler=mine:Config"], "is no Discipline and has no method marked"),
        (["--jackfield-scheduler=prority"], "Did you mean 'priority'?"),
        (["--jackfield-scheduler=fcfs", "--jackfield-config={"], "is no section of Fcfs"),
        (["--jackfield-scheduler=mine:Mine", '--jackfield-config={"sing": 1}'], "sing"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    tmp_path: Path, options: list[str], message: str
) -> None:
    done = run(tmp_path, *options)
    assert done.returncode == 4, done.stdout
    assert message in done.stderr and "Traceback" not in done.stderr


def test_names_mean_what_they_mean_in_a_configuration() -> None:
    by_name = find("fcfs")
    assert by_name is find("jackfield:fcfs") is find("jackfield.plugins.schedulers.fcfs:Fcfs")
    with pytest.raises(PluginNotFound):
        find("fcsf")
    with pytest.raises(PluginContractError):
        find("jackfield.core.api:PolicyConfig")


def test_the_section_reaches_the_policy() -> None:
    [made] = configured(find("priority"), '{"ageing": 3}')(MADE)
    assert made.config.ageing == 3
    [made] = configured(find("priority"), None)(MADE)
    assert made.config.ageing is None
