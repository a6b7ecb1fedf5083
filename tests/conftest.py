"""Profiles of the property tests: with `--hypothesis-profile=deep` they look much longer.

Without a GPU, Triton's kernels run in its interpreter, which must be known before any is imported.
Engines take a thread for each core. Those that wait for one another would keep the cores that other
tests run on, if they were not told to sleep before torch is imported.
"""

import os

from hypothesis import settings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("normal", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000, print_blob=True)
settings.load_profile("normal")
