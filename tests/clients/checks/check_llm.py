"""prompt, stream, system prompt and options on the command line, usage in its log, errors"""

import json
import os
import subprocess
import sys
from pathlib import Path

from given import MODEL, URL

HOME = Path.cwd() / "home"
HOME.mkdir()
(HOME / "extra-openai-models.yaml").write_text(
    f"- model_id: {MODEL}\n  model_name: {MODEL}\n  api_base: {URL}/v1\n"
    f"- model_id: plain\n  model_name: {MODEL}\n  api_base: {URL}/v1\n  completion: true\n"
    f"- model_id: none\n  model_name: none\n  api_base: {URL}/v1\n"
)
ENVIRONMENT = {**os.environ, "LLM_USER_PATH": str(HOME), "OPENAI_API_KEY": "none"}
OPTIONS = ("-o", "max_tokens", "12", "-o", "temperature", "0")


def llm(*arguments: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "llm", *arguments], env=ENVIRONMENT, text=True, check=False,
        capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == status, done
    return done.stdout if status == 0 else done.stderr


question = "What is the capital of France?"
streamed = llm("-m", MODEL, question, *OPTIONS)
assert "Paris" in streamed, streamed
assert llm("-m", MODEL, "--no-stream", question, *OPTIONS) == streamed
assert llm("-m", MODEL, "-s", "Answer in one word.", question, *OPTIONS).strip()
assert llm("-m", "plain", "1, 2, 3, 4,", *OPTIONS).startswith(" 5, 6")
logged = json.loads(llm("logs", "--json", "-n", "4"))
by_stream = {entry["response"]: entry for entry in logged}
assert by_stream[streamed.rstrip("\n")]["output_tokens"] > 0, logged
assert "The model 'none' does not exist" in llm("-m", "none", question, status=1)
