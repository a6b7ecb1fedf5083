"""`jackfield generate`, `chat` and `bench`: what goes to which stream, and how errors end."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from jackfield import LLM, SamplingParams
from jackfield.core.bench.roofline import Machine
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.inspection import alias_kinds, alias_names
from jackfield.core.testing.tiny_model import write_tiny_model
from jackfield.server.cli import main

ENGINE = (
    "--num-gpu-blocks-override=64", "--set=engine.threads=1", '--set=kernel.stack=["torch"]',
    "--max-num-seqs=4",
)  # fmt: skip
PROMPT = "the cat sat"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("JACKFIELD_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def plain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a chat template."""
    return write_tiny_model(tmp_path_factory.mktemp("plain"), template=None)


def expected(folder: Path, prompt: str, **params: Any) -> str:
    """The greedy answer, in Python."""
    settings: dict[str, Any] = {"kernel.stack": ["torch"], "progress": SilentProgress()}
    with LLM(folder, num_gpu_blocks_override=64, **settings) as llm:
        wanted = SamplingParams(**{"temperature": 0, "max_tokens": 8, **params})
        return llm.generate(prompt, wanted, use_tqdm=False)[0].outputs[0].text


def rendered(*turns: tuple[str, str]) -> str:
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    return f"{said}<|im_start|>assistant\n"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def answered(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> tuple[str, str]:
    """Both streams of a `generate` of 8 tokens that went well."""
    common = ("--model", str(folder), "--max-tokens=8", *ENGINE)
    code, out, err = run(capsys, "generate", *arguments, *common)
    assert code == 0, err
    return out, err


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))


def test_the_answer_goes_to_stdout_and_the_rest_to_stderr(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    out, err = answered(capsys, folder, PROMPT)
    assert out == expected(folder, rendered(("user", PROMPT))) + "\n"
    assert "LlamaForCausalLM" in err
    assert "cut off after 8 tokens; --max-tokens sets the limit" in err
    assert answered(capsys, folder, PROMPT, "--no-stream")[0] == out


def test_raw_leaves_the_template_out(
    capsys: pytest.CaptureFixture[str], folder: Path, plain_folder: Path
) -> None:
    out, _ = answered(capsys, folder, PROMPT, "--raw")
    assert out == expected(folder, PROMPT) + "\n"
    assert answered(capsys, plain_folder, PROMPT)[0] == out


def test_system_and_stop(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    full = expected(folder, rendered(("system", "mat"), ("user", PROMPT)))
    assert answered(capsys, folder, PROMPT, "--system", "mat")[0] == full + "\n"
    stop = full[3:5]
    out, err = answered(capsys, folder, PROMPT, "--system", "mat", "--stop", "none", "--stop", stop)
    assert out == full[: full.index(stop)] + "\n"
    assert "cut off" not in err


def test_json_is_all_there_is_on_stdout(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    out, _ = answered(capsys, folder, PROMPT, "--json", "--explain")
    result = json.loads(out)
    assert result["answer"] == expected(folder, rendered(("user", PROMPT)))
    assert (result["finish_reason"], result["output_tokens"]) == ("length", 8)
    assert result["prompt_tokens"] > 3
    assert result["seconds"] > 0
    assert result["model"] == str(folder)
    assert [one["action"] for one in result["decisions"]] == ["arrive", "admit", "finish"]


def test_explain_is_a_table_on_stderr(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    out, err = answered(capsys, folder, PROMPT, "--explain")
    assert "admit" in err and "REASON" in err
    assert "admit" not in out


def test_the_prompt_may_come_from_stdin(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, f"{PROMPT}\n".encode())
    assert answered(capsys, folder, "-")[0] == answered(capsys, folder, PROMPT)[0]
    feed(monkeypatch, b"caf\xff")
    code, out, err = run(capsys, "generate", "-", "--model", str(folder))
    assert (code, out) == (2, "")
    assert err.startswith("error: standard input is no valid utf-8")


def test_sampling_flags_reach_the_sampler(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    flags = ("--raw", "--temperature=1.5", "--top-k=50", "--top-p=0.9", "--seed=4")
    params = {"temperature": 1.5, "top_k": 50, "top_p": 0.9, "seed": 4}
    assert answered(capsys, folder, PROMPT, *flags)[0] == expected(folder, PROMPT, **params) + "\n"


def test_text_that_the_terminal_cannot_show(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(buffer, encoding="ascii", newline=""))
    assert main(["generate", PROMPT, "--model", str(folder), "--max-tokens=8", *ENGINE]) == 0
    want = expected(folder, rendered(("user", PROMPT))).encode("ascii", "replace")
    assert buffer.getvalue() == want + b"\n"


BAD = [
    (["--temperature=nan"], 2, "temperature must be a finite number"),
    (["--temperature=-1"], 2, "temperature must be a finite number between 0.0 and 100.0, got -1"),
    (["--top-p=0"], 2, "top_p must be above 0"),
    (["--top-k=-5"], 2, "top_k must be between -1"),
    (["--max-tokens=-1"], 2, "max_tokens must be between 0"),
    (["--max-tokens=99999999999999999999"], 2, "max_tokens must be between 0 and 2147483647"),
    (["--max-tokens=many"], 2, "Invalid value for '--max-tokens'"),
    (["--seed=99999999999999999999"], 2, "seed must be between"),
    (["--stop="], 2, "stop holds ''"),
    (["--raw", "--system=be kind"], 2, "--system needs the chat template"),
    (["--max-model-len=0"], 2, "model.max_model_len is 0"),
    (["--dtype=int8"], 2, "model.dtype is 'int8'"),
    (["--gpu-memory-utilization=2"], 2, "cache.memory_fraction is 2.0"),
    (["--pipeline-parallel-size=2"], 2, "pipeline_parallel_size is 2"),
    (["--set=engine.ovrlap=1"], 2, "unknown key engine.ovrlap"),
    (["--set=max_num_seqs=3", "--max-num-seqs=4"], 2, "--max-num-seqs and --set max_num_seqs"),
    (["--config=/no/such.toml"], 2, "/no/such.toml"),
    (["--temprature=1"], 2, "No such option: --temprature"),
    (["--model=/no/such/folder"], 4, "Model folder /no/such/folder does not exist"),
    (["--model=no such name"], 4, "neither a folder nor a hub id"),
    (['--set=kernel.stack=["none"]'], 3, "'none'"),
]


@pytest.mark.parametrize(("flags", "code", "message"), BAD, ids=[" ".join(one[0]) for one in BAD])
def test_a_mistake_is_one_sentence_and_a_code(
    capsys: pytest.CaptureFixture[str], folder: Path, flags: list[str], code: int, message: str
) -> None:
    model = [] if flags[0].startswith("--model=") else ["--model", str(folder)]
    found, out, err = run(capsys, "generate", PROMPT, *model, *flags)
    assert (found, out) == (code, "")
    last = err.splitlines()[-1]
    assert last.startswith("error: ") and message in last
    assert "Traceback" not in err
    found, out, _ = run(capsys, "generate", PROMPT, "--json", *model, *flags)
    assert found == code
    assert message in json.loads(out)["error"]["message"]


def test_folders_that_hold_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "generate", PROMPT, "--model", str(tmp_path))
    assert code == 4
    assert f"error: Model folder {tmp_path} lacks config.json" in err
    (tmp_path / "config.json").write_text("{broken")
    code, _, err = run(capsys, "generate", PROMPT, "--model", str(tmp_path))
    assert code == 4
    assert err.startswith("error: ") and "config.json" in err


def test_prompts_that_cannot_be_answered(
    capsys: pytest.CaptureFixture[str], folder: Path, plain_folder: Path
) -> None:
    code, _, err = run(capsys, "generate", "", "--model", str(folder))
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("error: the prompt is empty")
    common = ("--model", str(folder), *ENGINE)
    code, out, err = run(capsys, "generate", "word " * 300, *common)
    assert (code, out) == (2, "")
    assert "maximum context length is 256 tokens, but the prompt has" in err.splitlines()[-1]
    code, out, err = run(capsys, "generate", PROMPT, "--skip-tokenizer-init", *common)
    assert (code, out) == (4, "")
    assert "needs a tokenizer" in err.splitlines()[-1]
    plain = ("--model", str(plain_folder), *ENGINE)
    code, _, err = run(capsys, "generate", PROMPT, "--system", "be kind", *plain)
    assert code == 4
    assert "has no chat template" in err.splitlines()[-1]


def test_a_cache_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JACKFIELD_CACHE", str(tmp_path / "file"))
    code, out, err = run(capsys, "generate", PROMPT)
    assert (code, out) == (4, "")
    assert "set JACKFIELD_CACHE to a folder that can be written" in err.splitlines()[-1]


def test_an_interrupt_is_no_traceback(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jackfield.server.commands.generate.show", interrupt)
    code, out, err = run(capsys, "generate", PROMPT, "--model", str(folder), *ENGINE)
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_an_interrupt_while_a_command_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("jackfield.server.cli.import_module", interrupt)
    code, out, err = run(capsys, "serve")
    assert (code, out, err) == (130, "", "error: interrupted\n")


def test_an_answer_that_fails_is_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def forward(executor: object, plan: object) -> None:
        raise RuntimeError("the device is on fire")

    monkeypatch.setattr("jackfield.core.executors.single.SingleDevice.forward", forward)
    code, _, err = run(capsys, "generate", PROMPT, "--model", str(folder), *ENGINE)
    assert code == 1
    assert "error: the answer failed: step 0 failed: RuntimeError: the device is on fire" in err


def test_every_alias_is_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted(alias_kinds()) == sorted(alias_names())
    shown = [name for name, kind in alias_kinds().items() if not kind.fixed]
    for command in (["generate"], ["chat"], ["bench", "throughput"], ["bench", "planning"]):
        code, out, _ = run(capsys, *command, "--help")
        assert code == 0
        for name in shown:
            assert f"--{name.replace('_', '-')}" in out


def talk(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path, text: str,
    *flags: str,
) -> tuple[int, list[str], str]:  # fmt: skip
    """The conversation's messages as the model saw them, at each turn; and stderr."""
    feed(monkeypatch, text.encode())
    seen: list[str] = []
    from jackfield.core.assemble import Assembly

    render = Assembly.render_chat

    def remember(self: Assembly, messages: Any, **options: Any) -> tuple[str, list[int]]:
        made = render(self, messages, **options)
        seen.append(made[0])
        return made

    monkeypatch.setattr(Assembly, "render_chat", remember)
    common = ("--model", str(folder), "--max-tokens=4", *ENGINE)
    code, _, err = run(capsys, "chat", *common, *flags)
    return code, seen, err


def test_a_chat_remembers_and_forgets(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "one\n\n two \n/reset\nthree\n/what\n/quit\nfour\n"
    code, seen, err = talk(capsys, monkeypatch, folder, text, "--system", "mat")
    assert code == 0
    first = expected(folder, rendered(("system", "mat"), ("user", "one")), max_tokens=4)
    assert seen == [
        rendered(("system", "mat"), ("user", "one")),
        rendered(("system", "mat"), ("user", "one"), ("assistant", first), ("user", "two")),
        rendered(("system", "mat"), ("user", "three")),
    ]
    assert "unknown command /what" in err


def test_a_chat_from_a_file_ends_with_it_or_with_an_error(
    capsys: pytest.CaptureFixture[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert talk(capsys, monkeypatch, folder, "one")[0] == 0
    assert talk(capsys, monkeypatch, folder, "")[:2] == (0, [])
    code, _, err = talk(capsys, monkeypatch, folder, "word " * 300 + "\none\n")
    assert code == 2
    assert "maximum context length" in err.splitlines()[-1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(1e9, 1e10)
    monkeypatch.setattr("jackfield.core.bench.throughput.measure_machine", lambda *_: machine)


SIZES = ("--workload=tokens", "--requests=3", "--input-tokens=4", "--output-tokens=2", "--greedy")


@pytest.mark.usefixtures("quick")
def test_bench_throughput_writes_a_line_per_run(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ("--shape=qwen3-tiny", "--dtype=float32", *SIZES, *ENGINE, "--max-model-len=512")
    code, out, _ = run(capsys, "bench", "throughput", *shape, "--json", "--repeat=2")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["run"] for line in lines] == [0, 1]
    assert (lines[0]["model"], lines[0]["random_weights"]) == ("qwen3-tiny", True)
    assert (lines[0]["output_tokens"], lines[0]["temperature"]) == (6, 0.0)
    code, out, _ = run(capsys, "bench", "throughput", *shape, "--repeat=1")
    assert code == 0
    assert "tokens: 3 requests, 12 tokens in, 6 out" in out
    assert "tokens: 2 steps" in out


def test_bench_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, message in (
        (["--shape=qwen3-tiny", "--model=x"], "--shape and --model are both given"),
        (["--shape=qwen4"], "unknown shape 'qwen4'"),
        (["--workload=mix"], "unknown workload 'mix'"),
        (["--requests=3"], "--requests is for --workload tokens"),
        (["--workload=tokens", "--output-tokens=0"], "output_tokens of a workload is 0"),
    ):
        code, _, err = run(capsys, "bench", "throughput", *flags)
        assert code == 2
        assert message in err.splitlines()[-1]


def test_bench_plan(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--running=4", "--waiting=9", "--steps=5", '--set=kernel.stack=["torch"]')
    code, out, _ = run(capsys, "bench", "planning", *sizes, "--scheduling-policy=fcfs", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["steps"], result["waiting"]) == (5, 9)
    assert result["stack"]["scheduler"] == ["fcfs"]
    code, out, _ = run(capsys, "bench", "planning", *sizes, "--stack=priority,fcfs", "--json")
    assert code == 0 and json.loads(out)["stack"]["scheduler"] == ["priority", "fcfs"]
    code, _, err = run(capsys, "bench", "planning", "--advisors=a", "--set=scheduler.advisors=[]")
    assert code == 2 and "scheduler.advisors is given twice" in err
    code, out, _ = run(capsys, "bench", "planning", *sizes)
    assert "9 waiting" in out and "us p99" in out
