"""What one-byte keys and values do to attention and to answers."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from jackfield import LLM, SamplingParams
from jackfield.core.assemble import Assembly
from jackfield.core.checkpoint.progress import SilentProgress
from jackfield.core.evaluation.sequence import PagedSequence
from jackfield.core.testing.tiny_model import write_tiny_model

PROMPT = [(7 * i + i * i) % 290 + 5 for i in range(100)]
GREEDY = SamplingParams(temperature=0, max_tokens=64, ignore_eos=True, detokenize=False)
FORMATS = ["e4m3", "e5m2", "int8"]
LEAST_COSINE = {"e4m3": 0.999, "e5m2": 0.997, "int8": 0.999}


def write_model(folder: Path, factors: Mapping[str, float]) -> Path:
    """A tiny model; what has one of the names is multiplied."""
    write_tiny_model(folder)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        for part, factor in factors.items():
            weight *= factor if part in name else 1
    save_file(weights, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calmer than random weights are: attention is not on one key alone, and layers add to what is
    there, as in trained models. Without keys and values every second choice is another one."""
    calm = {"q_proj": 0.3, "o_proj": 0.3, "down_proj": 0.3, "embed": 6.0}
    return write_model(tmp_path_factory.mktemp("model"), calm)


def start(folder: Path, stack: tuple[str, ...] = ("paged",), **settings: Any) -> LLM:
    common = {"cache.stack": list(stack), "kernel.stack": ["torch"], "engine.threads": 1}
    limits = {"max_num_seqs": 8, "num_gpu_blocks_override": 128}
    return LLM(folder, progress=SilentProgress(), **{**common, **limits, **settings})


def encoded(folder: Path, format: str = "e4m3", **settings: Any) -> LLM:
    own = {"cache.fp8.format": format, **settings}
    return start(folder, ("paged", "fp8"), **own)


@contextmanager
def recorded(assembly: Assembly) -> Iterator[list[Tensor]]:
    """What attention gives, call by call: all layers of a step, then the next step."""
    attention: Any = assembly.loaded.table.operations.attention
    forward, outputs = attention.forward, []

    def record(*arguments: Any) -> Tensor:
        outputs.append(forward(*arguments).clone())
        return outputs[-1]

    attention.forward = record
    yield outputs
    del attention.forward


def attended(assembly: Assembly, pieces: list[int]) -> tuple[list[Tensor], Tensor]:
    """Per layer the output of attention over the prompt cut into pieces; and all logits."""
    sequence, start_at, logits = PagedSequence(assembly), 0, []
    with recorded(assembly) as outputs:
        for count in pieces:
            piece = PROMPT[start_at : start_at + count]
            logits.append(sequence.feed(piece, PROMPT))
            start_at += count
    layers = assembly.spec.num_layers
    return [torch.cat(outputs[layer::layers]) for layer in range(layers)], torch.cat(logits)


WAYS = {
    "prefill": [100],
    "chunked prefill": [16, 30, 7, 47],
    "decode": [20, *[1] * 80],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FORMATS)
def test_attention_of_every_layer_points_the_same_way(folder: Path, name: str, way: str) -> None:
    plain, _ = attended(start(folder).assembly, WAYS["prefill"])
    lossy, logits = attended(encoded(folder, name).assembly, WAYS[way])
    for exact, other in zip(plain, lossy, strict=True):
        cosine = torch.cosine_similarity(exact.flatten(), other.flatten(), dim=0)
        assert LEAST_COSINE[name] < float(cosine) < 1
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize("name", ["e4m3", "int8"])
@pytest.mark.parametrize("way", WAYS)
def test_the_likeliest_tokens_agree(folder: Path, name: str, way: str) -> None:
    """The answer of the exact cache, fed to the other one: at least 95 of 100 are its choice."""
    _, exact = attended(start(folder).assembly, WAYS["prefill"])
    _, lossy = attended(encoded(folder, name).assembly, WAYS[way])
    same = (exact.argmax(-1) == lossy.argmax(-1)).float().mean()
    assert float(same) >= 0.95


def test_greedy_answers_agree_with_the_exact_ones(folder: Path) -> None:
    llm, other = start(folder), encoded(folder)
    exact = [*llm.generate(PROMPT[:20], GREEDY, use_tqdm=False)[0].outputs[0].token_ids]
    sequence = PagedSequence(other.assembly)
    rows = [sequence.feed(PROMPT[:20], PROMPT[:20])[-1:]]
    rows += [sequence.feed([token]) for token in exact[:-1]]
    chosen = torch.cat(rows).argmax(-1).tolist()
    same = sum(one == two for one, two in zip(exact, chosen, strict=True))
    assert len(exact) == 64 and same >= 0.95 * 64


@pytest.mark.parametrize("name", FORMATS)
def test_answers_do_not_depend_on_the_batch(folder: Path, name: str) -> None:
    prompts = [PROMPT[: 3 + 9 * i] for i in range(8)]
    llm = encoded(folder, name)
    together = [a.outputs[0].token_ids for a in llm.generate(prompts, GREEDY, use_tqdm=False)]
    alone = [llm.generate(one, GREEDY, use_tqdm=False)[0].outputs[0].token_ids for one in prompts]
    assert together == alone
    cut = encoded(folder, name, max_num_batched_tokens=8)
    assert [a.outputs[0].token_ids for a in cut.generate(prompts, GREEDY, use_tqdm=False)] == alone


def test_scales_do_not_follow_the_traffic(folder: Path) -> None:
    llm = encoded(folder)
    layers = llm.assembly.loaded.executor._runner._loaded.layers
    before = [[scale.clone() for scale in layer.scales] for layer in layers]
    first = llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].outputs[0].token_ids
    llm.generate([PROMPT[i:] for i in range(1, 20)], GREEDY, use_tqdm=False)
    assert llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].outputs[0].token_ids == first
    for layer, scales in zip(layers, before, strict=True):
        assert all(map(torch.equal, layer.scales, scales))


@pytest.fixture(scope="module")
def outliers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with keys of 600 and more in its second layer."""
    factors = {"layers.1.self_attn.k_proj": 400.0, "layers.1.self_attn.q_proj": 0.3 / 400}
    return write_model(tmp_path_factory.mktemp("outliers"), factors)


def test_without_scales_outliers_saturate_and_the_start_says_so(outliers: Path) -> None:
    llm = encoded(outliers, **{"cache.fp8.scales": "one"})
    notice = next(line for line in llm.assembly.summary.lines() if "ATTENTION" in line)
    assert "2 of 2 layers are stored as fp8_e4m3 without scales" in notice and "448" in notice
    _, logits = attended(llm.assembly, WAYS["chunked prefill"])
    assert bool(logits.isfinite().all())
    keys = llm.assembly.loaded.executor._runner._loaded.layers[1].tensors["k"]
    written = keys[-(len(PROMPT) // 16) :].float()  # blocks are taken from the end
    assert written.abs().max() == 448
    answer = llm.generate(PROMPT, GREEDY, use_tqdm=False)[0].outputs[0]
    assert answer.error is None and len(answer.token_ids) == 64


def test_calibrated_scales_make_room_for_outliers(outliers: Path) -> None:
    plain, _ = attended(start(outliers).assembly, WAYS["prefill"])
    calibrated = encoded(outliers).assembly
    assert calibrated.loaded.notices == ()
    scaled, _ = attended(calibrated, WAYS["decode"])
    bare = encoded(outliers, **{"cache.fp8.scales": "one"})
    cut, _ = attended(bare.assembly, WAYS["decode"])
    good, bad = (
        float(torch.cosine_similarity(plain[1].flatten(), other[1].flatten(), dim=0))
        for other in (scaled, cut)
    )
    assert good > 0.998
    assert bad < 0.99
