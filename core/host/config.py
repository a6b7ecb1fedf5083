"""The configuration in sections, each value with its limits. Nothing is dropped silently."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from jackfield.core.api import DEVICE, RequestError, SamplingParams, parse_bytes
from jackfield.core.host.ordering import SchedulerStack

DEFAULT_EVICTION = ("pin", "ttl", "lru")
"""Who orders what is given up, if nobody is named."""
SHORTEST_TOKEN = 16
HIDDEN = "***"
"""Stands for a value that may be a secret."""


def _no_repeats(stack: list[str]) -> list[str]:
    bare = [entry.rpartition(":")[2] for entry in stack]
    repeated = sorted({name for name in bare if bare.count(name) > 1})
    if repeated:
        raise ValueError(f"should name each plugin once; repeated: {', '.join(repeated)}")
    if "" in bare:
        raise ValueError("should name plugins; an entry is empty")
    return stack


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(ge=1)]
PluginStack = Annotated[list[str], AfterValidator(_no_repeats)]
ServiceTier = Literal["flex", "scale", "priority", "fast"]
"""What OpenAI's clients may ask for; "auto" and "default" mean the caller's own tier."""
Share = Annotated[float, Field(ge=0, le=1)]


class Section(BaseModel):
    """Base of every section: unknown keys are refused, types are strict, values are frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class PluginSections(Section):
    """Base of a section that also holds the tables of plugins, raw, under the plugins' names.

    A plugin's table is validated by the plugin's own `Config` when the stack is selected.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False)

    @property
    def plugin_tables(self) -> dict[str, dict[str, Any]]:
        """Plugin name -> its raw table."""
        return dict(self.__pydantic_extra__)


class ModelConfig(Section):
    """Which model is served.

    name: a folder or a hub id; "" = the default model. tokenizer: a folder; None = the model's.
    architecture: instead of the one that config.json names. max_model_len: None = the model's.
    """

    name: str = ""
    revision: str | None = None
    tokenizer: str | None = None
    architecture: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    max_model_len: int | None = Field(None, ge=1)
    load_format: Literal["auto", "dummy"] = "auto"
    skip_tokenizer_init: bool = False
    seed: int = Field(0, ge=0, lt=2**63)
    generation_config: Literal["auto", "none"] = "auto"


class EngineConfig(Section):
    """How the loop runs.

    overlap: steps in flight; None = the executor's default. graphs: whether steps of decodes may be
    launched as CUDA graphs. starvation_share: of admissions that
    go to the oldest; 0 = off. fault_limit: faults after which a plugin is off. hook_budget:
    seconds after which a call counts as a fault. park_timeout: seconds that a request may wait
    outside the queue, or be held back in it. decision_log: entries. class_idle_seconds: how long
    a policy's class without requests is remembered. max_classes: of a policy at one place.
    threads: of the CPU. watchdog: seconds after which a step that has not returned ends an engine
    that runs in a process of its own.
    """

    device: str = "auto"
    max_num_seqs: int = Field(256, ge=1)
    max_num_batched_tokens: int | None = Field(None, ge=1)
    overlap: int | None = Field(None, ge=0, le=2)
    graphs: bool = True
    starvation_share: Share = 0.01
    fault_limit: int = Field(3, ge=1)
    hook_budget: float = Field(0.1, gt=0)
    park_timeout: float = Field(600.0, gt=0)
    decision_log: int = Field(65536, ge=0)
    class_idle_seconds: float = Field(600.0, ge=0)
    max_classes: int = Field(10_000, ge=1)
    threads: int | None = Field(None, ge=1)
    watchdog: float = Field(300.0, gt=0, le=86_400)


class ParallelConfig(Section):
    """How many processes hold the model together.

    tensor: ranks, each with a part of every layer. experts: whether each expert of a layer is held
    by one rank; otherwise each rank holds a part of all of them. nodes: hosts, with as many ranks
    each. node_rank: which of them this is; the first serves. master_address, master_port: where the
    others reach the first. token: a secret that all nodes know. timeout: seconds that the ranks may
    take to find each other.
    """

    tensor: int = Field(1, ge=1, le=1024)
    experts: bool = False
    nodes: int = Field(1, ge=1)
    node_rank: int = Field(0, ge=0)
    master_address: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    master_port: int = Field(0, ge=0, le=65535)
    token: str = Field("", repr=False)
    timeout: float = Field(60.0, gt=0, le=86_400)

    @model_validator(mode="after")
    def _nodes_fit(self) -> Self:
        if self.tensor % self.nodes:
            raise ValueError(
                f"parallel.tensor is {self.tensor}, which parallel.nodes {self.nodes} does not "
                f"divide; each node has as many ranks as the others"
            )
        if self.node_rank >= self.nodes:
            raise ValueError(
                f"parallel.node_rank is {self.node_rank}; of {self.nodes} nodes the last one is "
                f"{self.nodes - 1}"
            )
        if self.nodes > 1 and not self.master_port:
            raise ValueError(
                "parallel.master_port is 0; several nodes need a port that all of them are told"
            )
        if self.nodes > 1 and len(self.token) < SHORTEST_TOKEN:
            raise ValueError(
                f"parallel.token should be a secret of {SHORTEST_TOKEN} characters or more that "
                f"all nodes are given, best as JACKFIELD_PARALLEL__TOKEN: whoever knows it can join"
            )
        return self


class SchedulerConfig(PluginSections):
    """Who orders the waiting requests, from the root to the leaf, and who limits a step.

    stack: the last entry may be a table of class keys and the stacks below these classes.
    """

    stack: SchedulerStack = ["priority", "fcfs"]
    advisors: PluginStack = []


class CacheConfig(PluginSections):
    """What the KV cache is made of, and its size.

    num_blocks, or else memory (bytes, or a text such as "4GiB"), or else memory_fraction of the
    memory of a GPU. eviction: tier -> who orders what is given up there, wrappers first; a tier
    that is not named goes as "device". isolation: whether tenants may share blocks.
    shared_prefix_tokens: at the start of every prompt, shared by all tenants nevertheless.
    pinned_share: of a tier, pinned at most. loading_share: of the pool, filled from tiers for
    requests that wait. transfer_budget: bytes per step and direction. transfer_timeout: seconds.
    """

    stack: PluginStack = ["paged", "prefix"]
    num_blocks: int | None = Field(None, ge=1)
    memory: Bytes | None = None
    memory_fraction: float = Field(0.9, gt=0, le=1)
    eviction: dict[str, Annotated[PluginStack, Field(min_length=1)]] = {}
    isolation: Literal["tenant", "none"] = "tenant"
    shared_prefix_tokens: int = Field(0, ge=0)
    pinned_share: Share = 0.5
    loading_share: Share = 0.25
    transfer_budget: Bytes = 64 * 2**20
    transfer_timeout: float = Field(10.0, gt=0)

    def evictors(self, tier: str) -> list[str]:
        """The plugins that order what is given up in a tier, wrappers first."""
        device = self.eviction.get(DEVICE, list(DEFAULT_EVICTION))
        return self.eviction.get(tier, device)

    @property
    def all_evictors(self) -> list[str]:
        """Every plugin that any tier names."""
        stacks = (self.evictors(DEVICE), *self.eviction.values())
        return list(dict.fromkeys(name for stack in stacks for name in stack))


class KernelConfig(PluginSections):
    """Who serves the operations; for each one the first that can."""

    stack: PluginStack = ["triton", "cpu", "torch"]


class SamplingConfig(Section):
    """What a request that says nothing gets, before the model's generation_config.json.

    Limits are those of `SamplingParams`.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    seed: int | None = None

    @model_validator(mode="after")
    def _within_limits(self) -> Self:
        try:
            SamplingParams(**self.given)
        except RequestError as error:
            raise ValueError(f"sampling.{error}") from error
        return self

    @property
    def given(self) -> dict[str, Any]:
        """What the configuration sets."""
        return self.model_dump(exclude_none=True)


class ServerConfig(PluginSections):
    """How the model is offered over HTTP; without a server none of it matters.

    served_model_name: what requests may call the model; empty = the model's own name. max_body:
    bytes of a request. max_answers: prompts of one request times n. identify: who is asked who a
    caller is, in this order. service_tiers: the tier that a `service_tier` of a request means. The
    tables of plugins may hold secrets, so they are not printed.
    """

    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535)
    served_model_name: list[Annotated[str, Field(min_length=1)]] = []
    strict: bool = False
    drain_timeout: float = Field(30.0, ge=0)
    max_body: Bytes = 16 * 2**20
    max_answers: int = Field(1024, ge=1)
    identify: PluginStack = ["keys"]
    service_tiers: dict[ServiceTier, Annotated[str, Field(min_length=1)]] = {}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, value if name in type(self).model_fields else HIDDEN


class MetricsConfig(Section):
    """What a scrape finds. compat: also the names that dashboards of another engine ask for."""

    compat: Literal["none", "vllm"] = "none"


class Config(Section):
    """The whole configuration."""

    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    parallel: ParallelConfig = ParallelConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    cache: CacheConfig = CacheConfig()
    kernel: KernelConfig = KernelConfig()
    sampling: SamplingConfig = SamplingConfig()
    server: ServerConfig = ServerConfig()
    metrics: MetricsConfig = MetricsConfig()


SECTIONS: dict[str, type[Section]] = {
    "model": ModelConfig,
    "engine": EngineConfig,
    "parallel": ParallelConfig,
    "scheduler": SchedulerConfig,
    "cache": CacheConfig,
    "kernel": KernelConfig,
    "sampling": SamplingConfig,
    "server": ServerConfig,
    "metrics": MetricsConfig,
}


TOKEN = ("parallel", "token")


def core_keys() -> list[str]:
    """Every dotted key of the core's own sections."""
    return [f"{name}.{key}" for name, section in SECTIONS.items() for key in section.model_fields]


def holds_plugins(section: str) -> bool:
    """Whether the section may hold tables of plugins."""
    return issubclass(SECTIONS[section], PluginSections)


def may_be_secret(key: Sequence[str]) -> bool:
    """Whether no message should show the value: it belongs to a plugin that knows keys, or opens a
    door itself."""
    if len(key) < 2:
        return key[:1] == ("parallel",)
    return (key[0] == "server" and key[1] not in ServerConfig.model_fields) or key[:2] == TOKEN
