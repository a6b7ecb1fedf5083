"""bench serve on chats and completions: all requests done, tokens as ordered"""

import json
import os
import subprocess
import sys
from pathlib import Path

from given import MODEL, MODEL_FOLDER, URL

REQUESTS, PROMPT, ANSWER = 8, 64, 16
OFFLINE = {**os.environ, "HF_HUB_OFFLINE": "1"}

for backend, path in (("openai-chat", "/v1/chat/completions"), ("openai", "/v1/completions")):
    command = [
        sys.executable, "-m", "vllm.entrypoints.cli.main", "bench", "serve",
        "--backend", backend, "--endpoint", path, "--base-url", URL, "--model", MODEL,
        "--tokenizer", MODEL_FOLDER, "--dataset-name", "random", "--num-prompts", str(REQUESTS),
        "--random-input-len", str(PROMPT), "--random-output-len", str(ANSWER), "--ignore-eos",
        "--max-concurrency", "4", "--seed", "1", "--save-result", "--save-detailed",
        "--result-filename", f"{backend}.json",
    ]  # fmt: skip
    subprocess.run(command, check=True, env=OFFLINE)
    found = json.loads(Path(f"{backend}.json").read_text())
    assert (found["completed"], found["failed"]) == (REQUESTS, 0), found
    assert found["output_lens"] == [ANSWER] * REQUESTS, found["output_lens"]
    assert found["total_output_tokens"] == REQUESTS * ANSWER
    assert not any(found["errors"])
    assert found["mean_ttft_ms"] > 0 and found["mean_tpot_ms"] > 0
