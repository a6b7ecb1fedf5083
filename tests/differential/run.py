"""Compares this server with a peer that serves the same weights: python run.py --help."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from asking import Answer, ask_all
from cases import COUNT, Case, make_cases
from comparing import Difference, compare
from verdicts import verdict_on

Found = dict[str, list[Difference]]


def main(arguments: list[str]) -> int:
    """Exit code 1 if there is a difference that no verdict covers."""
    options = _options(arguments)
    cases = [one for one in make_cases(options.seed, options.count) if options.only in one["name"]]
    peer = _peer(options, cases)
    if options.ours is None:
        return 0
    ours = ask_all(options.ours, cases)
    found = {case["name"]: compare(case, ours[case["name"]], peer[case["name"]]) for case in cases}
    print(table(cases, found))
    if options.json:
        options.json.write_text(json.dumps(_details(cases, found, ours, peer), indent=1))
    return 1 if any(_open(case, found) for case in cases) else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    peer = parser.add_mutually_exclusive_group(required=True)
    peer.add_argument("--peer", metavar="URL", help="the other server")
    peer.add_argument("--peer-answers", type=Path, metavar="FILE", help="what --record wrote")
    parser.add_argument("--ours", metavar="URL", help="a jackfield server; none: only record")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep the peer's answers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all details")
    parser.add_argument("--only", default="", metavar="TEXT", help="only cases with it in the name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    return parser.parse_args(arguments)


def _peer(options: argparse.Namespace, cases: list[Case]) -> dict[str, Answer]:
    if options.peer_answers is not None:
        kept: dict[str, Answer] = json.loads(options.peer_answers.read_text())
        return kept
    answers = ask_all(options.peer, cases)
    if options.record is not None:
        options.record.write_text(json.dumps(answers))
    return answers


def table(cases: list[Case], found: Found) -> str:
    """One screen: how many cases are equal, by group, and what is different in the others.

    open: differences that no verdict covers.
    """
    lines = [f"{'group':<12}{'cases':>7}{'equal':>7}{'differ':>8}{'open':>6}"]
    for group in ("completion", "chat", "error", "route"):
        lines.append(_row(group, [case for case in cases if case["group"] == group], found))
    lines += [_row("all", cases, found), "", f"{'difference':<21}{'cases':>6}  {'right':<8}why"]
    kinds: Counter[tuple[str, str, str]] = Counter()
    for case in cases:
        kinds.update({_judged(case, one) for one in found[case["name"]]})
    for (kind, right, reason), count in kinds.most_common():
        lines.append(f"{kind:<21}{count:>6}  {right:<8}{reason}")
    return "\n".join(lines)


def _row(group: str, cases: list[Case], found: Found) -> str:
    different = sum(1 for case in cases if found[case["name"]])
    unclear = sum(1 for case in cases if _open(case, found))
    return f"{group:<12}{len(cases):>7}{len(cases) - different:>7}{different:>8}{unclear:>6}"


def _open(case: Case, found: Found) -> bool:
    return any(verdict_on(case, one) is None for one in found[case["name"]])


def _judged(case: Case, difference: Difference) -> tuple[str, str, str]:
    verdict = verdict_on(case, difference)
    if verdict is None:
        return difference.kind, "open", f"for example {case['name'][:60]}"
    return difference.kind, verdict.right, verdict.reason


def _details(
    cases: list[Case], found: Found, ours: dict[str, Answer], peer: dict[str, Answer]
) -> list[dict[str, Any]]:
    return [
        {
            **case,
            "differences": [
                one._asdict() | {"verdict": _judged(case, one)[1:]} for one in found[case["name"]]
            ],
            "ours": ours[case["name"]],
            "peer": peer[case["name"]],
        }
        for case in cases
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
