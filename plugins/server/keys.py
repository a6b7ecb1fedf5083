"""Who asks, by API key: a table of keys in the configuration, or everybody if it is empty."""

import os
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

from pydantic import ConfigDict, Field, SecretStr

from jackfield.core.api import (
    GATEWAY_HEADERS,
    Caller,
    ConfigError,
    PolicyConfig,
    RequestContext,
    RequestError,
    Trust,
    hookimpl,
    passed_on,
)

SOURCES = ("key", "key_env", "key_file", "key_sha256")
LARGEST = 2**31 - 1
NUMBERS = ("weight", "requests_per_minute", "tokens_per_minute")
TIERS = "tiers"
TENANT_HEADER = GATEWAY_HEADERS[0]
Amount = Annotated[float, Field(gt=0)]


class KeyEntry(PolicyConfig):
    """One key, and who its holder is.

    Exactly one of: the key itself, the environment variable or the file that holds it, or its
    SHA-256 in hexadecimal digits. tenant: the entry's name if left out. deadline: seconds from the
    arrival of each request. weight, requests_per_minute and tokens_per_minute become labels of
    these names, for the policies that read them. tiers: that a request may choose beside `tier`.
    may_act_for: patterns of tenants that the holder may pass on in headers, "*" for all.
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
    weight: Amount | None = None
    requests_per_minute: Amount | None = None
    tokens_per_minute: Amount | None = None
    tiers: list[Annotated[str, Field(pattern="^[^,]+$")]] = Field([])
    labels: dict[str, str] = Field({})
    may_act_for: list[Annotated[str, Field(min_length=1)]] = Field([])
    trust: Literal["user", "operator"] = "user"


class KeysConfig(PolicyConfig):
    """entries: by a name of your choice. operator_keys: of tenant "default", trusted as operator.

    The flags and the variable for API keys set `operator_keys`. Without any key nobody is asked
    for one.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    entries: dict[str, KeyEntry] = Field({})
    operator_keys: list[SecretStr] = Field([])


class Holder(NamedTuple):
    """Whose a key is. deadline: seconds from each arrival. may_act_for: patterns of tenants."""

    context: RequestContext
    deadline: float | None = None
    may_act_for: Sequence[str] = ()

    def at(self, now: float) -> RequestContext:
        """Of a request that arrives now."""
        if self.deadline is None:
            return self.context
        return self.context._replace(deadline=now + self.deadline)


class Keys:
    """Knows the holder of a key. All keys are compared, by their SHA-256 and in constant time."""

    Config = KeysConfig

    def __init__(self, config: KeysConfig) -> None:
        """Reads files and variables, once. Raises `ConfigError` naming the entry."""
        owners: dict[bytes, str] = {}
        self._holders: dict[bytes, Holder] = {}
        self._tenants: dict[str, Holder] = {}
        for name, digest, holder in _holders(config):
            if owners.setdefault(digest, name) != name:
                raise ConfigError(f"{name} has the key of {owners[digest]}; give each its own")
            self._holders[digest] = holder
            self._tenants.setdefault(holder.context.tenant, holder)

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
        return self._passed_on(found, caller) if found.may_act_for else found.at(caller.now)

    def _passed_on(self, gateway: Holder, caller: Caller) -> RequestContext:
        """For whom a gateway asks: what its headers say, over what the tenant's own entry says."""
        said = passed_on(caller)
        if said.tenant is None:
            return said.over(gateway.at(caller.now))
        if not any(fnmatchcase(said.tenant, pattern) for pattern in gateway.may_act_for):
            raise RequestError(
                f"this key may not act for the tenant {said.tenant!r}; leave the header "
                f"{TENANT_HEADER} out, or have may_act_for of its entry name the tenant",
                param=TENANT_HEADER,
                code="tenant_not_allowed",
            )
        holder = self._tenants.get(said.tenant, gateway)
        return said.over(holder.at(caller.now))._replace(trust=Trust.USER)


def _holders(config: KeysConfig) -> Iterator[tuple[str, bytes, Holder]]:
    for secret in config.operator_keys:
        key = _checked("operator_keys", secret.get_secret_value())
        yield "operator_keys", _digest(key), Holder(RequestContext(trust=Trust.OPERATOR))
    for name, entry in config.entries.items():
        place = f"entries.{name}"
        context = _context(name, entry)
        holder = Holder(context, entry.deadline, tuple(entry.may_act_for))
        yield place, _entry_digest(place, entry), holder


def _context(name: str, entry: KeyEntry) -> RequestContext:
    labels: Mapping[str, str] = MappingProxyType(_labels(f"entries.{name}", entry))
    tenant = name if entry.tenant is None else entry.tenant
    return RequestContext(
        tenant, entry.tier, entry.priority, None, labels, Trust(entry.trust)
    )


def _labels(place: str, entry: KeyEntry) -> dict[str, str]:
    """The entry's own, and those that its fields mean."""
    amounts = {name: getattr(entry, name) for name in NUMBERS}
    meant = {name: f"{amount:.12g}" for name, amount in amounts.items() if amount is not None}
    if entry.tiers:
        meant[TIERS] = ",".join(entry.tiers)
    for name in sorted({*NUMBERS, TIERS} & entry.labels.keys()):
        raise ConfigError(
            f"{place} has a label {name!r}, which is what the field {name} sets; write that field "
            f"instead"
        )
    return {**entry.labels, **meant}


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
