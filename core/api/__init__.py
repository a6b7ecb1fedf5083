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
from jackfield.core.api.block_index import KEY_BYTES, TOKEN_BYTES, BlockIndex, Chain
from jackfield.core.api.block_order import BlockOrder
from jackfield.core.api.cache import CacheAxis, CacheLayout, CachePlugin
from jackfield.core.api.cache_hints import NO_HINTS, CacheHints
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
from jackfield.core.api.collective import (
    COLLECTIVES,
    JOINED,
    RANK_OPERATIONS,
    AllGather,
    AllReduce,
    AllReduceAddRmsNorm,
    Collective,
    Ranks,
)
from jackfield.core.api.draw import NO_TOKEN, PART_MULTIPLE, Best, SamplePart
from jackfield.core.api.encoding import KvEncoding, KvScales, ScaleSource
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
from jackfield.core.api.eviction import DEVICE, BlockMeta, EvictionSpace, Evictor, EvictorPlugin
from jackfield.core.api.experts import (
    CountsExperts,
    ExpertHistogram,
    Experts,
    Route,
    Routing,
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
    OPTIONAL_OPERATIONS,
    AttentionKernel,
    AttnBatch,
    AttnStep,
    BatchLimits,
    HeadNorms,
    KernelPlugin,
    KvLayer,
    KvLayout,
    KvSpec,
    KvTensor,
    Operations,
    OpSpec,
    Projected,
    SampleBatch,
    SeatState,
    SharedPrefixes,
    SliceExtent,
    StepNews,
    StepTensors,
)
from jackfield.core.api.latent import (
    LatentAttentionKernel,
    LatentHeads,
    LatentProjected,
    LatentSizes,
)
from jackfield.core.api.model import (
    Attend,
    LayerGroup,
    LogitsPart,
    Model,
    ModelInputs,
    ModelSpec,
    PartsLogits,
    Shard,
    Split,
    Weights,
)
from jackfield.core.api.output import LOGPROB_FLOOR, FinishReason, Logprob
from jackfield.core.api.predictor import Predictor
from jackfield.core.api.quant import (
    QuantizedWeights,
    QuantKind,
    QuantMatmul,
    QuantMatmulSiluMul,
    QuantWeight,
)
from jackfield.core.api.quant_experts import QuantExpert, QuantExperts
from jackfield.core.api.reordering import Reordering
from jackfield.core.api.request import NO_LABELS, RequestContext, RequestView, Trust
from jackfield.core.api.retention import Keep, ReleaseCause, Released
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
from jackfield.core.api.sizes import format_bytes, parse_bytes
from jackfield.core.api.tier import (
    DirectStore,
    Move,
    MoveCandidate,
    MoveView,
    TierSpace,
    TierSpec,
    TierStore,
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
    "DEVICE", "KEY_BYTES", "NO_HINTS", "TOKEN_BYTES", "BlockIndex", "BlockMeta", "BlockOrder",
    "CacheAxis", "CacheHints", "CacheLayout", "CachePlugin", "Chain", "DirectStore",
    "EvictionSpace", "Evictor", "EvictorPlugin", "Keep", "KvEncoding", "KvScales", "Move",
    "MoveCandidate", "MoveView", "ReleaseCause", "Released", "Reordering", "ScaleSource",
    "TierSpace", "TierSpec", "TierStore",
    # kernels
    "COLLECTIVES", "JOINED", "NO_TOKEN", "OPERATIONS", "OPTIONAL_OPERATIONS", "PART_MULTIPLE",
    "RANK_OPERATIONS", "AllGather", "AllReduce", "AllReduceAddRmsNorm",
    "AttentionKernel", "AttnBatch", "AttnStep", "BatchLimits", "Best", "Collective",
    "CountsExperts", "ExpertHistogram", "Experts", "HeadNorms", "KernelPlugin", "KvLayer",
    "KvLayout", "KvSpec", "KvTensor", "LatentAttentionKernel", "LatentHeads", "LatentProjected",
    "LatentSizes", "OpSpec", "Operations", "Projected", "Ranks", "Route", "Routing",
    "SampleBatch", "SamplePart", "SeatState", "SharedPrefixes", "SliceExtent", "StepNews",
    "StepTensors",
    # models
    "Attend", "LayerGroup", "LogitsPart", "Model", "ModelInputs", "ModelSpec", "PartsLogits",
    "Shard", "Split", "Weights",
    # quantized weights
    "QuantExpert", "QuantExperts", "QuantKind", "QuantMatmul", "QuantMatmulSiluMul",
    "QuantWeight", "QuantizedWeights",
    # hooks
    "API_VERSION", "KINDS", "PROJECT", "SPECIFICATIONS", "CacheHooks", "SchedulerHooks",
    "ServerHooks", "hookimpl", "hookspec",
    # requests and answers
    "GATEWAY_HEADERS", "LOGPROB_FLOOR", "NO_LABELS", "Caller", "FinishReason", "Logprob",
    "PassedOn", "RequestContext", "RequestView", "SamplingParams", "Trust", "passed_on",
    # sizes in bytes
    "format_bytes", "parse_bytes",
    # errors
    "CapacityError", "CheckpointError", "ConfigError", "ContextLengthExceeded",
    "EngineStoppedError", "JackfieldError", "ModelError", "ModelNotFound", "NeverFits",
    "PluginConflict", "PluginContractError", "PluginError", "PluginLoadError", "PluginNotFound",
    "PluginVersionError", "RequestError", "RequestRejected", "TokenizerError",
]
