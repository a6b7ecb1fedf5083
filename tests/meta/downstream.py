"""Run by an environment with the wheel and, at first, the example plugin: can it be used?

Argument: "installed" or "uninstalled", which is what the plugin should be.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from jackfield import LLM, SamplingParams
from jackfield.core.api import PluginNotFound

FOLDER = Path(__file__).parent.parent / "data" / "tiny_qwen3"
DISTRIBUTION = "jackfield-shortest-first"
NAMES = ("shortest_first", "shorter_when_busy")
CONFIG = """
[scheduler]
stack = ["priority", "shortest_first"]
advisors = ["shorter_when_busy"]
[scheduler.shortest_first]
seconds_per_token = 0.5
[scheduler.shorter_when_busy]
waiting = 0
most = 3
"""


def start(config: Path) -> LLM:
    """An engine with the stack that names the plugin, and a tiny model of random weights."""
    return LLM(
        FOLDER, config=config, load_format="dummy", skip_tokenizer_init=True, dtype="float32",
        max_model_len=128, num_gpu_blocks_override=64, max_num_seqs=1,
    )  # fmt: skip


def check_installed(config: Path) -> None:
    """Both are chosen, order and limit, and are listed with their distribution and version."""
    with start(config) as llm:
        plugins = llm.assembly.summary.plugins
        for name in NAMES:
            assert f"scheduler {name} ({DISTRIBUTION} 1.2.0)" in plugins, plugins
        prompts = [{"prompt_token_ids": [7] * length} for length in (60, 30, 2)]
        params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True, detokenize=False)
        outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [3, 3, 3]
    for name in NAMES:
        row = listed(config, name)
        assert row is not None, f"plugins list does not show {name}"
        assert (row["distribution"], row["version"], row["active"]) == (DISTRIBUTION, "1.2.0", True)


def check_uninstalled(config: Path) -> None:
    """Starting with the same stack names what is missing."""
    assert [listed(config, name) for name in NAMES] == [None, None]
    try:
        start(config).close()
    except PluginNotFound as error:
        assert "'shortest_first'" in str(error), error
    else:
        raise AssertionError("an engine starts without the plugin that its stack names")


def listed(config: Path, name: str) -> dict[str, object] | None:
    """What `jackfield plugins list` says of the plugin."""
    command = [str(Path(sys.executable).parent / "jackfield"), "plugins", "list", "--json"]
    done = subprocess.run(
        [*command, "--config", str(config)], check=True, capture_output=True, text=True, cwd="/"
    )
    rows: list[dict[str, object]] = json.loads(done.stdout)["plugins"]
    return next((row for row in rows if row["name"] == name), None)


def main(state: str) -> None:
    """Run the checks of one state."""
    with TemporaryDirectory() as folder:
        config = Path(folder) / "stack.toml"
        config.write_text(CONFIG)
        {"installed": check_installed, "uninstalled": check_uninstalled}[state](config)
    print(f"{DISTRIBUTION} was checked as {state}")


if __name__ == "__main__":
    main(sys.argv[1])
