"""All that a plugin author needs, in one import.

Nothing here imports torch; the kinds of plugins are described in their own modules.
"""

from jackfield.core.api.cache import CacheAxis, CacheLayout, CachePlugin
from jackfield.core.api.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    ContextLengthExceeded,
    EngineStoppedError,
    JackfieldError,
    ModelError,
    ModelNotFound,
    NeverFits,
    PluginConflict,
    PluginContractError,
    PluginError,
    PluginLoadError,
    PluginNotFound,
    PluginVersionError,
    RequestError,
    RequestRejected,
    TokenizerError,
)
from jackfield.core.api.hooks import (
    API_VERSION,
    KINDS,
    PROJECT,
    SPECIFICATIONS,
    CacheHooks,
    SchedulerHooks,
    hookimpl,
    hookspec,
)
from jackfield.core.api.kernel import (
    OPERATIONS,
    AttentionKernel,
    AttnBatch,
    AttnStep,
    BatchLimits,
    KernelPlugin,
    KvLayer,
    KvLayout,
    KvSpec,
    KvTensor,
    Operations,
    OpSpec,
    SampleBatch,
)
from jackfield.core.api.model import (
    Attend,
    LayerGroup,
    Model,
    ModelInputs,
    ModelSpec,
    Shard,
    Split,
    Weights,
)
from jackfield.core.api.output import LOGPROB_FLOOR, FinishReason, Logprob
from jackfield.core.api.request import NO_LABELS, RequestContext, RequestView
from jackfield.core.api.sampling import SamplingParams
from jackfield.core.api.scheduler import (
    ClassState,
    Discipline,
    Event,
    EventKind,
    LoadView,
    PolicyConfig,
    PolicyContext,
    PrefillNeed,
    Quota,
    QuotaView,
    Rank,
    Shape,
    StepView,
    Verdict,
    VerdictKind,
    VictimView,
    Work,
)

__all__ = [
    # schedulers
    "ClassState", "Discipline", "Event", "EventKind", "LoadView", "PolicyConfig", "PolicyContext",
    "PrefillNeed", "Quota", "QuotaView", "Rank", "Shape", "StepView", "Verdict", "VerdictKind",
    "VictimView", "Work",
    # caches
    "CacheAxis", "CacheLayout", "CachePlugin",
    # kernels
    "OPERATIONS", "AttentionKernel", "AttnBatch", "AttnStep", "BatchLimits", "KernelPlugin",
    "KvLayer", "KvLayout", "KvSpec", "KvTensor", "OpSpec", "Operations", "SampleBatch",
    # models
    "Attend", "LayerGroup", "Model", "ModelInputs", "ModelSpec", "Shard", "Split", "Weights",
    # hooks
    "API_VERSION", "KINDS", "PROJECT", "SPECIFICATIONS", "CacheHooks", "SchedulerHooks",
    "hookimpl", "hookspec",
    # requests and answers
    "LOGPROB_FLOOR", "NO_LABELS", "FinishReason", "Logprob", "RequestContext", "RequestView",
    "SamplingParams",
    # errors
    "CapacityError", "CheckpointError", "ConfigError", "ContextLengthExceeded",
    "EngineStoppedError", "JackfieldError", "ModelError", "ModelNotFound", "NeverFits",
    "PluginConflict", "PluginContractError", "PluginError", "PluginLoadError", "PluginNotFound",
    "PluginVersionError", "RequestError", "RequestRejected", "TokenizerError",
]
