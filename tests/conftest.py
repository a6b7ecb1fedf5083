"""Profiles of the property tests: with `--hypothesis-profile=deep` they look much longer."""

from hypothesis import settings

settings.register_profile("normal", deadline=None)
settings.register_profile("deep", deadline=None, max_examples=3000, print_blob=True)
settings.load_profile("normal")
