"""What a step of a loaded model costs its first rank."""

import logging
from pathlib import Path

import torch

from jackfield.core.api import Shard
from jackfield.core.assemble import Assembly
from jackfield.core.bench.model_outline import ModelOutline
from jackfield.core.bench.roofline import ModelCost
from jackfield.core.checkpoint.folder import ModelFolder
from jackfield.core.host.stack import load_model_class

log = logging.getLogger("jackfield.bench")


def cost_of(assembly: Assembly) -> ModelCost:
    """With all experts equally likely."""
    summary, ranks = assembly.summary, assembly.resolved.config.parallel.tensor
    layers = ranks * assembly.spec.num_layers
    kv_bytes = summary.kv_bytes / summary.kv_tokens / layers
    try:
        return ModelCost.of(_outline(assembly), kv_bytes)
    except Exception as error:
        log.warning(
            "The roofline counts all parameters for each token, since the model cannot be "
            "built without weights: %s: %s", type(error).__name__, error,
        )  # fmt: skip
        itemsize = getattr(torch, summary.dtype).itemsize
        return ModelCost.plain(assembly.spec, itemsize, kv_bytes, ranks)


def _outline(assembly: Assembly) -> ModelOutline:
    config = assembly.resolved.config
    folder, ranks = ModelFolder(Path(assembly.summary.model)), config.parallel
    return ModelOutline.of(
        load_model_class(config.model.architecture or folder.architecture).cls,
        folder.config,
        getattr(torch, assembly.summary.dtype),
        Shard(0, ranks.tensor, ranks.experts),
        assembly.loaded.table.owners,
    )
