"""Prints what nox reports, one session a line, and how many passed and failed."""

import json
import sys
from pathlib import Path


def main(report: Path) -> None:
    """Read the report, if the run got as far as writing one."""
    sessions = json.loads(report.read_text())["sessions"] if report.is_file() else []
    for session in sessions:
        print(f"{session['name']:<18} {session['result']:<9} {session.get('duration', 0):>6.1f} s")
    passed = sum(session["result"] == "success" for session in sessions)
    print(f"{passed} passed, {len(sessions) - passed} failed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
