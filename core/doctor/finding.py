"""What an examination tells."""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """PROBLEM: the model would not start, or not answer rightly. NOTE: worth knowing."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "problem"


class Finding(NamedTuple):
    """One sentence, with what to do about it. subject: what it is about, in a word."""

    severity: Severity
    subject: str
    text: str


def ok(subject: str, text: str) -> Finding:
    return Finding(Severity.OK, subject, text)


def note(subject: str, text: str) -> Finding:
    return Finding(Severity.NOTE, subject, text)


def problem(subject: str, text: str) -> Finding:
    return Finding(Severity.PROBLEM, subject, text)


def has_problem(findings: Sequence[Finding]) -> bool:
    return any(finding.severity is Severity.PROBLEM for finding in findings)
