"""A model folder for tests: a Llama of random weights with a real tokenizer, under 1 MB."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, models, pre_tokenizers, trainers
from torch import Tensor

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CORPUS = ["the cat sat on the mat, the dog in the sun.", "one two three four five six seven"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCAB = 300
HIDDEN, MIDDLE, HEADS, KV_HEADS, HEAD, LAYERS = 64, 96, 4, 2, 16, 2
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "hidden_size": HIDDEN, "intermediate_size": MIDDLE, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
    "vocab_size": VOCAB, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "attention_bias": False,
    "bos_token_id": 1, "eos_token_id": 2, "dtype": "float32",
}  # fmt: skip


def write_tiny_model(
    folder: Path, *, seed: int = 0, template: str | None = TEMPLATE, **generation: Any
) -> Path:
    """Write the model into `folder`, and return it.

    template: the chat template; None = a model without one. generation: entries of
    generation_config.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer: dict[str, Any] = {"eos_token": "<|im_end|>"}
    if template is not None:
        tokenizer["chat_template"] = template
    documents = {
        "config.json": CONFIG,
        "generation_config.json": {"eos_token_id": 2, **generation},
        "tokenizer_config.json": tokenizer,
    }
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document))
    _tokenizer().save(str(folder / "tokenizer.json"))
    save_file(dict(_weights(seed)), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def _tokenizer() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS * 4, trainer)
    return backend


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "model.embed_tokens", (VOCAB, HIDDEN)
    yield "lm_head", (VOCAB, HIDDEN)
    yield "model.norm", (HIDDEN,)
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm", (HIDDEN,)
        yield f"{layer}.post_attention_layernorm", (HIDDEN,)
        yield f"{layer}.self_attn.q_proj", (HEADS * HEAD, HIDDEN)
        yield f"{layer}.self_attn.k_proj", (KV_HEADS * HEAD, HIDDEN)
        yield f"{layer}.self_attn.v_proj", (KV_HEADS * HEAD, HIDDEN)
        yield f"{layer}.self_attn.o_proj", (HIDDEN, HEADS * HEAD)
        yield f"{layer}.mlp.gate_proj", (MIDDLE, HIDDEN)
        yield f"{layer}.mlp.up_proj", (MIDDLE, HIDDEN)
        yield f"{layer}.mlp.down_proj", (HIDDEN, MIDDLE)


def _weights(seed: int) -> Iterator[tuple[str, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    for name, shape in _shapes():
        values = torch.randn(shape, generator=generator) * shape[-1] ** -0.5
        yield f"{name}.weight", 1 + values if len(shape) == 1 else 1.5 * values
