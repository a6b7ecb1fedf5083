"""What is checked, and how. `nox -l` lists the sessions; `nox` runs all but those that take long.

Every session runs in one environment: the one that nox runs in, if it holds this checkout and its
tools, else `.venv`, which is made once. What an installation looks like is checked in a second
one, `.nox/clean`, that holds the wheel and what the wheel asks for, and nothing else.

`nox --parallel 2` runs sessions side by side, each in a process of its own, and shows what one says
when it has ended.
"""

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import nox

ROOT = Path(__file__).parent
CLEAN = ROOT / ".nox" / "clean"
CLEAN_PYTHON = str(CLEAN / "bin" / "python")
DIST = ROOT / ".nox" / "dist"
CONSTRAINTS = ("-c", str(ROOT / "constraints.txt"))
TOOLS = ("nox", "ruff", "mypy", "import-linter")
EXAMPLE = ROOT / "tests" / "meta" / "example_plugin"
DOCS = ("meta/test_docs.py", "meta/test_hooks_documented.py")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
# Many tests start processes, which would compile the package again, each for itself.
KEPT_BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}
# Most of what is installed is never imported; what is, is compiled by who imports it first.
NO_BYTECODE = "--no-compile"

nox.needs_version = ">=2026.8.10"
nox.options.default_venv_backend = "none"
nox.options.error_on_external_run = False
nox.options.sessions = [
    "lint", "types", "imports", "docs", "tests", "wheel", "downstream",
]  # fmt: skip
beside = nox.session(allow_parallel=True)
"""Decorates a session that others do not disturb, and that disturbs none."""


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff's rules, on every file. Alone, since the first session makes the environment."""
    session.run(shared_python(), "-m", "ruff", "check", ".")


@beside
def types(session: nox.Session) -> None:
    """Mypy, strict, on the package as it is imported."""
    session.run(shared_python(), "-m", "mypy", "--num-workers", "2")


@beside
def imports(session: nox.Session) -> None:
    """Who may import whom."""
    session.run(str(Path(shared_python()).parent / "lint-imports"))


@beside
def docs(session: nox.Session) -> None:
    """The documents say what the code says, above all those that the code makes."""
    run_pytest(session, *(f"tests/{name}" for name in DOCS))


@beside
def tests(session: nox.Session) -> None:
    """The whole suite, but for what needs a GPU and what other sessions run."""
    elsewhere = (*DOCS, "meta/test_wheel.py", "soak", "clients", "differential")
    skipped = [f"--ignore=tests/{name}" for name in elsewhere]
    # Who has finished takes half of what the other has left: long tests are neighbours.
    workers = ("-n", "2", "--dist", "worksteal")
    arguments = session.posargs or ["-m", "not gpu and not long", *workers, *skipped]
    run_pytest(session, *arguments)


@nox.session
def stacks(session: nox.Session) -> None:
    """Part of the suite: a generation with every pair of installed policies, caches, kernels."""
    run_pytest(session, "-m", "not gpu", "tests/stacks")


@beside
def wheel(session: nox.Session) -> None:
    """The distributions hold exactly the tracked files, and the wheel works by itself."""
    run_pytest(session, "tests/meta/test_wheel.py")
    make_clean()
    check = ("tests/meta/installed.py", str(CLEAN), str(ROOT))
    session.run(CLEAN_PYTHON, "-I", *check, env=KEPT_BYTECODE)


@nox.session(allow_parallel=True, requires=["wheel"])
def downstream(session: nox.Session) -> None:
    """A third party's policy is installed, chosen, run, tested and uninstalled."""
    python = CLEAN_PYTHON
    build = ("-m", "build", "--no-isolation", "--wheel", "--outdir", str(DIST), str(EXAMPLE))
    session.run(shared_python(), *build, silent=True)
    pip(session, python, "install", "--force-reinstall", "--no-deps", newest("jackfield_shortest"))
    told = ONE_THREAD | KEPT_BYTECODE
    session.run(python, "-I", "tests/meta/downstream.py", "installed", env=told)
    pip(session, python, "install", *CONSTRAINTS, "pytest", "hypothesis")
    run = (python, "-I", "-m", "pytest", "-q", "--rootdir")
    with TemporaryDirectory() as elsewhere, TemporaryDirectory() as empty:
        for file in EXAMPLE.glob("test_*.py"):
            shutil.copy(file, elsewhere)
        session.run(*run, elsewhere, elsewhere)
        for name in ("shortest_first", "jackfield-shortest-first:shorter_when_busy"):
            session.run(*run, empty, empty, f"--jackfield-scheduler={name}")
    pip(session, python, "uninstall", "--yes", "jackfield-shortest-first")
    session.run(python, "-I", "tests/meta/downstream.py", "uninstalled", env=told)


@nox.session
def soak(session: nox.Session) -> None:
    """A thousand clients that go, and forty deaths under load. Takes minutes."""
    skipped = "--ignore=tests/soak/test_rank_deaths.py"
    run_pytest(session, "-m", "not gpu", "tests/soak", skipped, *session.posargs)


@nox.session(name="parallel-soak")
def parallel_soak(session: nox.Session) -> None:
    """Ranks on several nodes; and twenty deaths of each process, under load and at the start."""
    run_pytest(session, "-m", "long", "tests/parallel")
    run_pytest(session, "-m", "not gpu", "tests/soak/test_rank_deaths.py", *session.posargs)


@nox.session(name="gpu-soak")
def gpu_soak(session: nox.Session) -> None:
    """Ten minutes of churn on a GPU: `-- --churn-seconds 60` is one. Needs a GPU of its own."""
    run_pytest(session, "-m", "gpu", "tests/soak", *session.posargs)


@nox.session
def clients(session: nox.Session) -> None:
    """Clients that others wrote, each in an environment of its own. `-- NAME...` picks some."""
    session.run(shared_python(), "tests/clients/run.py", *session.posargs)


@nox.session
def gpu(session: nox.Session) -> None:
    """What only a GPU can show: kernels in bfloat16, graphs, whole models. Needs one."""
    run_pytest(session, "tests/kernels/triton", *session.posargs)
    run_pytest(session, "-m", "gpu", "--ignore=tests/soak", *session.posargs)


@nox.session(name="kernels-compiled")
def kernels_compiled(session: nox.Session) -> None:
    """All that tests of Triton's kernels launch compiles for a GPU, which need not be there."""
    folder = "tests/kernels/triton"
    skipped = [f"--ignore={folder}/{name}.py" for name in ("test_compile", "test_rehearsal")]
    told = {"TRITON_INTERPRET": "0", "JACKFIELD_ALL_KERNELS": "1", "PYTHONPATH": folder}
    arguments = ["-p", "launches_compile", "-n", "2", folder, *skipped, *session.posargs]
    session.run(shared_python(), "-m", "pytest", "-q", *arguments, env=ONE_THREAD | told)


@nox.session(name="conformance-deep")
def conformance_deep(session: nox.Session) -> None:
    """The property tests again, with many more examples. Takes long; run it before a release."""
    run_pytest(session, "-m", "not gpu", "--hypothesis-profile=deep", "-n", "2", *session.posargs)


@nox.session
def differential(session: nox.Session) -> None:
    """The same requests to two servers with the same weights: --peer URL --ours URL."""
    session.run(shared_python(), "tests/differential/run.py", *session.posargs)


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Pytest in the shared environment, with one thread, so that tests can run side by side."""
    environment = ONE_THREAD | KEPT_BYTECODE
    session.run(shared_python(), "-m", "pytest", "-q", *arguments, env=environment)


def pip(session: nox.Session, python: str, *arguments: str) -> None:
    """Pip in an environment, quietly: its output is shown when it fails."""
    session.run(python, "-m", "pip", *arguments, silent=True)


@cache
def shared_python() -> str:
    """The interpreter of an environment with this checkout and its tools; made if there is none."""
    own = str(ROOT / ".venv" / "bin" / "python")
    for candidate in (sys.executable, own):
        if Path(candidate).exists() and is_ready(candidate):
            return candidate
    subprocess.run([sys.executable, "-m", "venv", str(ROOT / ".venv")], check=True)
    install = (own, "-m", "pip", "install", "--quiet", NO_BYTECODE, *CONSTRAINTS)
    subprocess.run([*install, *TOOLS, "--editable", ".[test]"], check=True, cwd=ROOT)
    return own


def is_ready(python: str) -> bool:
    """Whether the environment holds this checkout, editable, and every tool."""
    command = [python, "-I", str(ROOT / "scripts" / "is_ready.py"), *TOOLS]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def make_clean() -> None:
    """The environment with the wheel as it is now, made from the sdist."""
    run_quietly(shared_python(), "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT))
    if not Path(CLEAN_PYTHON).exists():
        run_quietly(shared_python(), "-m", "venv", str(CLEAN))
    wheel, install = newest("jackfield-"), (CLEAN_PYTHON, "-m", "pip", "install", NO_BYTECODE)
    run_quietly(*install, *CONSTRAINTS, wheel)
    run_quietly(*install, "--force-reinstall", "--no-deps", wheel)


def run_quietly(*command: str) -> None:
    """For what several sessions share: its output is shown when it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n")
    done.check_returncode()


def newest(prefix: str) -> str:
    """The wheel that was built last."""
    return str(max(DIST.glob(f"{prefix}*.whl"), key=lambda path: path.stat().st_mtime))
