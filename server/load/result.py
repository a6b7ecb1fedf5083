"""The figures of one run against a server."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jackfield.server.load.load import Load, Outcome


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Times in milliseconds. cpu_us_per_token: of the server's HTTP process, all requests of the
    run included; None if its /metrics does not tell. problems: what failed, and how often.
    """

    workload: str
    streams: int
    requests: int
    failed: int
    prompt_tokens: int
    output_tokens: int
    seconds: float
    output_tokens_per_second: float
    first_token_ms_p50: float
    first_token_ms_p99: float
    gap_ms_p50: float
    gap_ms_p99: float
    answer_ms_p50: float
    answer_ms_p99: float
    health_ms_p99: float | None
    cpu_us_per_token: float | None
    problems: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    @classmethod
    def of(cls, load: Load, outcome: Outcome) -> "LoadResult":
        """From what was measured."""
        answers = outcome.answers
        tokens = sum(answer.tokens for answer in answers)
        firsts = [answer.first for answer in answers if answer.first is not None]
        gaps = [gap for answer in answers for gap in answer.gaps]
        whole = [answer.seconds for answer in answers if answer.problem is None]
        problems = Counter(answer.problem for answer in answers if answer.problem is not None)
        cpu = None if outcome.cpu is None or not tokens else 1e6 * outcome.cpu / tokens
        return cls(
            workload=load.workload.name,
            streams=load.streams,
            requests=len(answers),
            failed=problems.total(),
            prompt_tokens=load.workload.num_prompt_tokens,
            output_tokens=tokens,
            seconds=round(outcome.seconds, 4),
            output_tokens_per_second=round(tokens / outcome.seconds, 2),
            first_token_ms_p50=_ms(firsts, 0.5),
            first_token_ms_p99=_ms(firsts, 0.99),
            gap_ms_p50=_ms(gaps, 0.5),
            gap_ms_p99=_ms(gaps, 0.99),
            answer_ms_p50=_ms(whole, 0.5),
            answer_ms_p99=_ms(whole, 0.99),
            health_ms_p99=_ms(outcome.health, 0.99) if load.watch else None,
            cpu_us_per_token=None if cpu is None else round(cpu, 1),
            problems=dict(problems.most_common(8)),
        )


def _ms(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    place = min(int(share * len(ordered)), len(ordered) - 1)
    return round(1e3 * ordered[place], 3) if ordered else 0.0
