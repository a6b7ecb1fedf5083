"""two streams at once on chats and completions: no request failed, tokens as ordered"""

import json
import subprocess
import sys
from pathlib import Path

from given import MODEL, MODEL_FOLDER, URL

REQUESTS, PROMPT, ANSWER = 8, 48, 12

for path in ("/v1/chat/completions", "/v1/completions"):
    out = Path.cwd() / f"{path.rsplit('/', 1)[-1]}{len(path)}.json"
    command = [
        sys.executable, "-m", "guidellm", "run", "--backend",
        f"kind=openai_http,target={URL},model={MODEL},request_format={path}",
        "--profile", "kind=concurrent,streams=2",
        "--constraint", f"kind=max_requests,count={REQUESTS}",
        "--data", f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={ANSWER}",
        "--tokenizer", f"kind=hf_auto,model={MODEL_FOLDER}",
        "--output", f"kind=json,path={out}", "--disable-progress",
    ]  # fmt: skip
    subprocess.run(command, check=True)
    (benchmark,) = json.loads(out.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (REQUESTS, 0), totals
    done = benchmark["requests"]["successful"]
    assert [one["output_tokens"] for one in done] == [ANSWER] * REQUESTS
    assert all(PROMPT <= one["prompt_tokens"] < PROMPT + 60 for one in done)
    assert all(one["time_to_first_token_ms"] > 0 for one in done)
