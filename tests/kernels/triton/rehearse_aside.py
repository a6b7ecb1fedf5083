"""Which kernels a rehearsal notes, which are loaded before the first request comes, and which the
steps of an engine want; nothing is launched.

Run without TRITON_INTERPRET. There is no GPU, but Triton is told of one, and so is the plugin:
tensors are the host's, and everything else is as it would be on the GPU. What is computed means
nothing: products are not computed, and integers that nobody writes are 0.
"""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from pretended_driver import ARCH, Driver
from torch import Tensor
from triton.runtime import driver

from jackfield.plugins.kernels.triton import support

PROCESSORS = 132
FEW = 1 << 15
"""Numbers that are cleared in no time. What torch takes as indices are the ids and positions of a
step's tokens, which are fewer."""


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """In the place of torch's."""
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def cleared(make: Any) -> Any:
    """Skipped launches leave garbage in what they should have written; here it is 0."""

    def made(*arguments: Any, **named: Any) -> Tensor:
        tensor: Tensor = make(*arguments, **named)
        return tensor.zero_() if tensor.numel() < FEW else tensor

    return made


def pretend() -> None:
    """Before the modules are imported that take these functions."""
    driver.set_active(Driver())  # type: ignore[arg-type]
    support.capability = lambda device: ARCH
    support.architecture = lambda device: f"sm_{ARCH}"
    support.num_processors = lambda device, elsewhere: PROCESSORS
    support.reasons = lambda *asked: []
    torch.empty, torch.empty_like = cleared(torch.empty), cleared(torch.empty_like)
    torch.Tensor.new_empty = cleared(torch.Tensor.new_empty)  # type: ignore[method-assign]
    torch.nn.functional.linear = product


pretend()

from jackfield import LLM, SamplingParams  # noqa: E402
from jackfield.core.api import KernelPlugin, KvScales  # noqa: E402
from jackfield.core.engine.device_inputs import Shape  # noqa: E402
from jackfield.core.engine.graphs import DecodeGraphs, Sizes, Variant, padded_sizes  # noqa: E402
from jackfield.core.engine.planner import Limits  # noqa: E402
from jackfield.core.engine.runner import LoadedModel, Runner  # noqa: E402
from jackfield.core.executors import kv_scales  # noqa: E402
from jackfield.core.executors.warm_up import rehearse, run_steps, warm_up_steps  # noqa: E402
from jackfield.core.testing.tiny_model import write_tiny_model  # noqa: E402
from jackfield.plugins.kernels.triton import dense_prefill  # noqa: E402
from jackfield.plugins.kernels.triton.compiling import Wanted  # noqa: E402
from jackfield.plugins.kernels.triton.configs import Configs  # noqa: E402
from jackfield.plugins.kernels.triton.latent_dense import LatentDense  # noqa: E402
from jackfield.plugins.kernels.triton.noting import Notes, noted  # noqa: E402

MODEL = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 128,
    "num_attention_heads": 32, "num_key_value_heads": 4, "hidden_size": 256,
    "intermediate_size": 512, "max_position_embeddings": 40960, "dtype": "bfloat16",
    "tie_word_embeddings": True, "vocab_size": 2048,
}  # fmt: skip
GREEDY = {"temperature": 0.0, "ignore_eos": True, "detokenize": False}
SOME = GREEDY | {"temperature": 0.7, "seed": 1}
KINDS = [
    GREEDY,
    SOME,
    SOME | {"top_p": 0.9},
    SOME | {"top_k": 5},
    SOME | {"min_p": 0.1},
    GREEDY | {"prompt_logprobs": 2},
    SOME | {"logprobs": 2},
    SOME | {"repetition_penalty": 1.1},
    SOME | {"repetition_penalty": 1.1, "top_p": 0.9},
    GREEDY | {"repetition_penalty": 1.1},
]
NUMBERS = (3, 5, 9, 20, 37, 70, 100, 255, 300)
LENGTHS = [*range(1, 6), 8, 9, 15, 17, 33, 64, 65, 129, 600, 2047, 4096, 9000, 39_001]


class Everybody(Notes):
    """Notes what all threads launch."""

    def concerns(self) -> bool:
        return True


class Rehearsed(KernelPlugin):
    """Wants to see what steps launch."""

    def __init__(self) -> None:
        super().__init__(self.Config())

    def rehearsal(self) -> Any:
        return nullcontext()


def attend(q_NSH: Tensor, k_KLH: Tensor, v_KLH: Tensor, causal: bool, scale: float) -> Any:
    """The library that computes the dense route on a GPU: results lie by token, then by head."""
    heads, rows, _ = q_NSH.shape
    out_SNH = q_NSH.new_empty(rows, heads, v_KLH.shape[2])
    return out_SNH.transpose(0, 1), torch.empty(heads, rows)


def take_dense_route(llm: LLM) -> None:
    """From the lengths on that the table names for the GPU."""
    latent = llm.assembly.loaded.executor._runner._loaded.layers[0].tensors.get("latent")
    if latent is not None:
        place = "dense/head_192", torch.bfloat16, torch.device("cpu")
        limits = dense_prefill.Limits.of(Configs("latent_prefill").find(*place))
        llm.assembly.loaded.table.operations.attention._latent.prefill.dense = LatentDense(
            attend, limits
        )
        return
    place = "dense/head_128", torch.bfloat16, torch.device("cpu")
    config = dense_prefill.Configs("prefill").find(*place)
    names = [name.upper() for name in dense_prefill.Limits._fields]
    limits = dense_prefill.Limits(*(config[name] for name in names))
    kernel: Any = llm.assembly.loaded.table.operations.attention
    kernel._prefill._dense = dense_prefill.DensePrefill(attend, limits)


def ones(layer: int, peaks: Any, encoding: Any) -> KvScales:
    """In the place of what would be calibrated."""
    return KvScales(*map(torch.ones_like, peaks))


class Uncaptured(DecodeGraphs):
    """What would be captured is only run."""

    def __init__(self, runner: Runner, model: LoadedModel, limits: Limits) -> None:
        self._inputs: Any = runner._inputs
        self._compute = runner._compute
        self._sizes = Sizes(padded_sizes(limits.max_seqs), limits.max_model_len, model.short_steps)

    def _captured(self, variant: Variant) -> None:
        size, longest = variant.size, self._sizes.longest(variant)
        shape = Shape(size, size, 1, longest, (), False, variant.filtered, variant.grouped)
        batch = self._inputs.upload(self._inputs.nothing(shape), shape)
        self._compute(batch, variant.samples)


def make(folder: Path, model: dict[str, Any], settings: dict[str, Any]) -> LLM:
    write_tiny_model(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | MODEL | model))
    kv_scales._scales_of = ones
    aliases = {"kernel.stack": ["triton", "torch"], "kernel.triton.interpret": True}
    with noted(Everybody(ARCH)):
        return LLM(str(folder), load_format="dummy", device="cpu", **aliases, **settings)


def rehearsed(llm: LLM) -> Notes:
    loaded: Any = llm.assembly.loaded
    with noted(Everybody(ARCH)) as notes:
        model = loaded.executor._runner._loaded
        rehearse([Rehearsed()], model, loaded.limits, 16, torch.device("cpu"))
    return notes


def warmed_up(llm: LLM) -> Notes:
    """What is launched at start. Others are loaded by the first step that wants them, which waits
    for it even where they have been compiled."""
    loaded: Any = llm.assembly.loaded
    model, limits = loaded.executor._runner._loaded, loaded.limits
    runner = Runner(model, limits, 16, torch.device("cpu"))
    with noted(Everybody(ARCH)) as notes:
        with torch.inference_mode():
            Uncaptured(runner, model, limits).warm_up(samples=True)
        run_steps(runner, warm_up_steps(limits, 16, loaded.num_blocks))
    return notes


def generate(llm: LLM, lengths: list[int], kinds: list[dict[str, Any]], *, alike: bool) -> None:
    """alike: whether prompts begin with the same tokens."""
    longest = llm.assembly.loaded.limits.max_model_len - 8
    prompts = []
    for number, length in enumerate(lengths):
        own = number % 250 + 1
        begin = [1 if alike else own] * (min(length, longest) - 1)
        prompts.append({"prompt_token_ids": [*begin, own]})
    params = [SamplingParams(max_tokens=2 + n % 4, **kind) for n, kind in enumerate(kinds)]
    found = llm.generate(prompts, params, use_tqdm=False)
    assert not any(output.error for request in found for output in request.outputs)


def wanted_by_steps(llm: LLM) -> Notes:
    """Prompts of many lengths, and decodes beside them, with and without the same beginning."""
    with noted(Everybody(ARCH)) as notes:
        for kind in KINDS:
            generate(llm, [7, 19], [kind] * 2, alike=False)
        for length in LENGTHS:
            generate(llm, [length], [SOME], alike=False)
        most = llm.assembly.loaded.limits.max_seqs
        for number in sorted({min(number, most) for number in NUMBERS}):
            some = [KINDS[2 if n == number - 1 else 1] for n in range(number)]
            generate(llm, [11 + n % 5 for n in range(number)], some, alike=False)
            generate(llm, [700 + n for n in range(number)], some, alike=True)
        beside = [5, 4000, 9, 20_001, 17]
        for number in (2, 40):
            generate(llm, [9] * number + [2000] * 10, [SOME] * (number + 10), alike=False)
            generate(llm, [9] * number + beside, [SOME] * (number + 5), alike=False)
            generate(llm, [700] * number + beside, [SOME] * (number + 5), alike=True)
    return notes


def told(wanted: Wanted) -> list[Any]:
    """As a reader wants to see it."""
    data = json.loads(wanted.data)
    where = zip(data["attrs_keys"], data["attrs_vals"], strict=True)
    aligned = [place for (place, *_), attributes in where if attributes]
    return [wanted.name, list(data["signature"].values()), data["constant_vals"], aligned]


def main(settings: dict[str, Any]) -> dict[str, Any]:
    model = settings.pop("model", {})
    with TemporaryDirectory() as folder:
        llm = make(Path(folder), model, settings)
        if model.get("head_dim", 128) == 128:
            take_dense_route(llm)
        found, start, steps = rehearsed(llm), warmed_up(llm), wanted_by_steps(llm)
    wanted = [*start.wanted, *(one for one in steps.wanted if one not in start.wanted)]
    missing = [told(one) for one in wanted if one not in found.wanted]
    late = [told(one) for one in steps.wanted if one not in start.wanted]
    modules = sorted({one.module for one in found.wanted})
    return {"noted": len(found.wanted), "wanted": len(wanted), "missing": missing, "late": late,
            "modules": modules, "foreign": sorted(found.foreign | steps.foreign),
            "kernels": sorted({one.name for one in steps.wanted})}  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
