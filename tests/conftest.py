"""Profiles of the property tests: with `--hypothesis-profile=deep` they look much longer.

Without a GPU, Triton's kernels run in its interpreter, which must be known before any is imported.
"""

import os

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("normal", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000, print_blob=True)
settings.load_profile("normal")
