"""generate_until and loglikelihood over local data, the scores against transformers' ones"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from given import MODEL, URL, post

TASKS = Path(__file__).parents[1] / "lm_eval_tasks"
OUT = Path.cwd() / "out"


def evaluate() -> dict[str, Any]:
    """The results of both tasks."""
    model = f"model={MODEL},base_url={URL}/v1/completions,num_concurrent=2,max_retries=1"
    command = [
        sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args",
        model, "--include_path", ".", "--tasks", "capitals,counting", "--output_path", str(OUT),
        "--log_samples", "--seed", "1",
    ]  # fmt: skip
    subprocess.run(command, cwd=TASKS, check=True)
    (found,) = OUT.rglob("results_*.json")
    return json.loads(found.read_text())["results"]


def samples(task: str) -> list[Any]:
    """What was asked and answered, in order."""
    (found,) = OUT.rglob(f"samples_{task}_*.jsonl")
    entries = [json.loads(line) for line in found.read_text().splitlines()]
    return sorted(entries, key=lambda entry: entry["doc_id"])


def own_score(context: str, answer: str) -> float:
    """The log-probability of the answer's tokens as the server itself tells it."""
    found = post(
        "/v1/completions", model=MODEL, prompt=context + answer, echo=True, logprobs=1,
        max_tokens=0,
    )["choices"][0]["logprobs"]  # fmt: skip
    start = found["text_offset"].index(len(context))
    return sum(found["token_logprobs"][start:])


results = evaluate()
print(results)
expected = json.loads((TASKS / "expected.json").read_text())
scored = [
    (request[0], request[1], float(response[0][0]))
    for sample in samples("capitals")
    for request, response in (
        (list(sample["arguments"][f"gen_args_{place}"].values()), sample["resps"][place])
        for place in range(3)
    )
]
assert len(scored) == 18
for (context, answer, score), right in zip(scored, expected, strict=True):
    assert abs(score - right) < 2e-3, (context, answer, score, right)
    assert abs(score - own_score(context, answer)) < 1e-3, (context, answer, score)
assert results["capitals"]["acc,none"] >= 5 / 6
assert results["counting"]["exact_match,first"] == 1
assert all(sample["resps"][0][0].strip() for sample in samples("counting"))
