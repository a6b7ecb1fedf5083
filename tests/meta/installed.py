"""Run by an environment that holds the wheel only: does what was installed work by itself?

Arguments: the folder of the environment, and that of the checkout, which must play no part.
"""

import subprocess
import sys
from importlib.metadata import distribution, entry_points
from pathlib import Path


def main(environment: Path, checkout: Path) -> None:
    """Fail with an AssertionError that says what is wrong."""
    check_origin(environment, checkout)
    check_entry_points()
    check_commands(environment)
    print(f"jackfield {distribution('jackfield').version} works as it was installed")


def check_origin(environment: Path, checkout: Path) -> None:
    """The package is the installed one, importing it is cheap, and the checkout is not in sight."""
    import jackfield

    assert Path(jackfield.__file__).is_relative_to(environment), jackfield.__file__
    assert "torch" not in sys.modules, "import jackfield imports torch"
    assert str(checkout) not in sys.path, sys.path
    names = [getattr(jackfield, name) for name in jackfield.__all__]
    assert len(names) == len(jackfield.__all__)


def check_entry_points() -> None:
    """Every plugin of the wheel can be imported."""
    own = distribution("jackfield").entry_points
    plugins = [point for point in own if point.group.startswith("jackfield.v1.")]
    assert plugins, "the wheel has no entry points"
    for point in plugins:
        assert isinstance(point.load(), type), point
    assert entry_points(group="jackfield.v1.schedulers", name="fcfs")


def check_commands(environment: Path) -> None:
    """The command line answers."""
    for arguments in (("--help",), ("--version",), ("plugins", "list"), ("plugins", "check")):
        command = [str(environment / "bin" / "jackfield"), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        assert done.stdout.strip(), arguments


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
