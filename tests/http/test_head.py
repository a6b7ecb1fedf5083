"""Probes that ask with HEAD get the status without a body."""

from typing import Any

import pytest


@pytest.mark.parametrize("path", ["/live", "/health", "/ready"])
def test_a_probe_may_ask_for_the_head_only(site: Any, path: str) -> None:
    found = site.http.head(path)
    assert (found.status_code, found.content) == (200, b"")


def test_other_paths_have_no_head(site: Any) -> None:
    assert site.http.head("/v1/models").status_code == 405
