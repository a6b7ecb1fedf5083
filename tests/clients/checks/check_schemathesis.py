"""every route fuzzed from /openapi.json, valid and invalid: no 5xx, no answer that it denies"""

import os
import subprocess
import sys
from pathlib import Path

from given import KEY, KEYED_URL, URL

ENVIRONMENT = {
    **os.environ,
    "SCHEMATHESIS_HOOKS": "fuzz_hooks",
    "PYTHONPATH": str(Path(__file__).parent),
}


def fuzz(url: str, *options: str) -> None:
    """All routes of a server; raises when a check fails."""
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url,
        "--no-color", "--continue-on-failure", "--output-sanitize", "false", "--seed", "7",
        "--generation-database", "none", *options,
    ]  # fmt: skip
    subprocess.run(command, check=True, env=ENVIRONMENT)


fuzz(KEYED_URL, "--max-examples", "100", "--header", f"Authorization: Bearer {KEY}")
fuzz(URL, "--max-examples", "50", "--phases", "fuzzing")
