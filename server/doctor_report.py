"""What an examination found, a line for each finding."""

from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jackfield.core.doctor.examine import Report

WIDTH = 100


def doctor_lines(report: "Report") -> str:
    """Severity, subject, sentence."""
    rows = [(each.severity.value, each.subject, each.text) for each in report.findings]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = []
    for severity, subject, text in rows:
        start = f"{severity.ljust(first)}  {subject.ljust(second)}  "
        pieces = wrap(text, max(WIDTH - len(start), 40), break_long_words=False,
                      break_on_hyphens=False)  # fmt: skip
        lines.append(f"\n{' ' * len(start)}".join([start + pieces[0], *pieces[1:]]))
    return "\n".join(lines)
