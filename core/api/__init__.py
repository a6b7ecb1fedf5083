"""All that a plugin author needs, in one import.

Nothing here imports torch; the kinds of plugins are described in their own modules.
"""

from jackfield.core.api.acting import GATEWAY_HEADERS, PassedOn, passed_on
from jackfield.core.api.advisor import (
    Event,
    EventKind,
    LoadView,
    PlanBuilder,
    PrefillNeed,
    Quota,
    QuotaView,
    Shape,
    StepView,
    Verdict,
    VerdictKind,
    VictimView,
)
from jackfield.core.api.cache import CacheAxis, CacheLayout, CachePlugin
from jackfield.core.api.claims import (
    Bound,
    Claim,
    Edf,
    Extent,
    Fcfs,
    NoCreditForIdle,
    Rate,
    StrictPriority,
    WeightedFair,
    WorkConserving,
    counted_tokens,
)
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
    ServerHooks,
    hookimpl,
    hookspec,
)
from jackfield.core.api.identity import Caller
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
from jackfield.core.api.predictor import Predictor
from jackfield.core.api.request import NO_LABELS, RequestContext, RequestView, Trust
from jackfield.core.api.sampling import SamplingParams
from jackfield.core.api.scheduler import (
    MAX_LOOKAHEAD,
    OVERFLOW,
    ClassState,
    Discipline,
    PolicyConfig,
    PolicyContext,
    Rank,
    Work,
)

__all__ = [
    # schedulers
    "MAX_LOOKAHEAD", "OVERFLOW", "ClassState", "Discipline", "Event", "EventKind", "LoadView",
    "PlanBuilder", "PolicyConfig", "PolicyContext", "Predictor", "PrefillNeed", "Quota",
    "QuotaView", "Rank", "Shape", "StepView", "Verdict", "VerdictKind", "VictimView", "Work",
    # what a policy claims
    "Bound", "Claim", "Edf", "Extent", "Fcfs", "NoCreditForIdle", "Rate", "StrictPriority",
    "WeightedFair", "WorkConserving", "counted_tokens",
    # caches
    "CacheAxis", "CacheLayout", "CachePlugin",
    # kernels
    "OPERATIONS", "AttentionKernel", "AttnBatch", "AttnStep", "BatchLimits", "KernelPlugin",
    "KvLayer", "KvLayout", "KvSpec", "KvTensor", "OpSpec", "Operations", "SampleBatch",
    # models
    "Attend", "LayerGroup", "Model", "ModelInputs", "ModelSpec", "Shard", "Split", "Weights",
    # hooks
    "API_VERSION", "KINDS", "PROJECT", "SPECIFICATIONS", "CacheHooks", "SchedulerHooks",
    "ServerHooks", "hookimpl", "hookspec",
    # requests and answers
    "GATEWAY_HEADERS", "LOGPROB_FLOOR", "NO_LABELS", "Caller", "FinishReason", "Logprob",
    "PassedOn", "RequestContext", "RequestView", "SamplingParams", "Trust", "passed_on",
    # errors
    "CapacityError", "CheckpointError", "ConfigError", "ContextLengthExceeded",
    "EngineStoppedError", "JackfieldError", "ModelError", "ModelNotFound", "NeverFits",
    "PluginConflict", "PluginContractError", "PluginError", "PluginLoadError", "PluginNotFound",
    "PluginVersionError", "RequestError", "RequestRejected", "TokenizerError",
]
