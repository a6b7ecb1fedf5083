"""Who asks, by API key: a table of keys in the configuration, or everybody if it is empty."""

import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, SecretStr

from jackfield.core.api import (
    Caller,
    ConfigError,
    PolicyConfig,
    RequestContext,
    Trust,
    hookimpl,
)

SOURCES = ("key", "key_env", "key_file", "key_sha256")
LARGEST = 2**31 - 1


class KeyEntry(PolicyConfig):
    """One key, and who its holder is.

    Exactly one of: the key itself, the environment variable or the file that holds it, or its
    SHA-256 in hexadecimal digits. tenant: the entry's name if left out. deadline: seconds from the
    arrival of each request.
    """

    model_config = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)

    key: SecretStr | None = None
    key_env: str | None = None
    key_file: str | None = None
    key_sha256: Annotated[str, Field(pattern="^[0-9a-fA-F]{64}$")] | None = None
    tenant: str | None = Field(None, min_length=1)
    tier: str = Field("default", min_length=1)
    priority: int = Field(0, ge=-LARGEST, le=LARGEST)
    deadline: float | None = Field(None, gt=0)
    labels: dict[str, str] = Field({})
    trust: Literal["user", "operator"] = "user"


class KeysConfig(PolicyConfig):
    """entries: by a name of your choice. operator_keys: of tenant "default", trusted as operator.

    The flags and the variable for API keys set `operator_keys`. Without any key nobody is asked
    for one.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    entries: dict[str, KeyEntry] = Field({})
    operator_keys: list[SecretStr] = Field([])


class Keys:
    """Knows the holder of a key. All keys are compared, by their SHA-256 and in constant time."""

    Config = KeysConfig

    def __init__(self, config: KeysConfig) -> None:
        """Reads files and variables, once. Raises `ConfigError` naming the entry."""
        owners: dict[bytes, str] = {}
        self._holders: dict[bytes, tuple[RequestContext, float | None]] = {}
        for name, digest, context, seconds in _holders(config):
            if owners.setdefault(digest, name) != name:
                raise ConfigError(f"{name} has the key of {owners[digest]}; give each its own")
            self._holders[digest] = (context, seconds)

    @hookimpl
    def identify(self, caller: Caller) -> RequestContext | None:
        """The holder of the key; without any keys, everybody."""
        if not self._holders:
            return RequestContext()
        if caller.key is None:
            return None
        digest, found = _digest(caller.key), None
        for known, holder in self._holders.items():
            if compare_digest(known, digest):
                found = holder
        if found is None:
            return None
        context, seconds = found
        return context if seconds is None else context._replace(deadline=caller.now + seconds)


def _holders(config: KeysConfig) -> Iterator[tuple[str, bytes, RequestContext, float | None]]:
    for secret in config.operator_keys:
        key = _checked("operator_keys", secret.get_secret_value())
        yield "operator_keys", _digest(key), RequestContext(trust=Trust.OPERATOR), None
    for name, entry in config.entries.items():
        place = f"entries.{name}"
        yield place, _entry_digest(place, entry), _context(name, entry), entry.deadline


def _context(name: str, entry: KeyEntry) -> RequestContext:
    labels: Mapping[str, str] = MappingProxyType(dict(entry.labels))
    tenant = name if entry.tenant is None else entry.tenant
    return RequestContext(
        tenant, entry.tier, entry.priority, None, labels, Trust(entry.trust)
    )


def _entry_digest(name: str, entry: KeyEntry) -> bytes:
    given = [source for source in SOURCES if getattr(entry, source) is not None]
    if len(given) != 1:
        raise ConfigError(
            f"{name} has {' and '.join(given) or 'no key'}; give it exactly one of "
            f"{', '.join(SOURCES)}"
        )
    if entry.key_sha256 is not None:
        return bytes.fromhex(entry.key_sha256)
    if entry.key_env is not None:
        return _digest(_checked(name, _from_environment(name, entry.key_env)))
    if entry.key_file is not None:
        return _digest(_checked(name, _from_file(name, entry.key_file)))
    assert entry.key is not None
    return _digest(_checked(name, entry.key.get_secret_value()))


def _from_environment(name: str, variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"{name} takes its key from the environment variable {variable!r}, which is not set; "
            f"set it, or take the entry out"
        )
    return key


def _from_file(name: str, file: str) -> str:
    try:
        key = Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(
            f"{name} takes its key from {file}, which cannot be read: {reason}; make it readable, "
            f"or take the entry out"
        ) from None  # the error of a file that is no text holds what is in it
    if not key:
        raise ConfigError(f"{name} takes its key from {file}, which is empty; write one into it")
    return key


def _checked(name: str, key: str) -> str:
    """The key, if a client can send it."""
    if not key or key != key.strip() or not key.isprintable():
        raise ConfigError(
            f"{name} has a key that no client can send: it is empty, or has spaces around it or "
            f"control characters in it; choose another"
        )
    if not key.strip("*"):
        raise ConfigError(f"{name} has asterisks for a key, which is how keys are shown; write it")
    return key


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
