"""Which layers see the whole context and which only its last positions."""

from jackfield.core.api.model import LayerGroup
from jackfield.plugins.models.blocks.config_reader import ConfigReader

FULL, SLIDING = "full_attention", "sliding_attention"
DEFAULT_WINDOW = 4096
DEFAULT_FIRST_SLIDING = 28

Windows = tuple[int | None, ...]


def read_window(reader: ConfigReader) -> int | None:
    """`sliding_window`: null means none, an absent key the default of the architectures."""
    if reader.is_null("sliding_window"):
        return None
    return reader.integer("sliding_window", DEFAULT_WINDOW)


def read_switched_windows(reader: ConfigReader, num_layers: int) -> Windows:
    """Of configs with `use_sliding_window`: the layers from `max_window_layers` on slide.

    `layer_types`, where given, says it per layer instead.
    """
    window = read_window(reader) if reader.flag("use_sliding_window", False) else None
    if reader.has("layer_types"):
        return _by_type(reader, window, num_layers)
    first = reader.integer("max_window_layers", DEFAULT_FIRST_SLIDING, minimum=0)
    return tuple(window if layer >= first else None for layer in range(num_layers))


def read_alternating_windows(reader: ConfigReader, num_layers: int) -> Windows:
    """The same, but every other layer slides, from the first one to before `max_window_layers`."""
    window = read_window(reader) if reader.flag("use_sliding_window", False) else None
    if reader.has("layer_types"):
        return _by_type(reader, window, num_layers)
    end = reader.integer("max_window_layers", DEFAULT_FIRST_SLIDING, minimum=0)
    return tuple(window if layer % 2 == 0 and layer < end else None for layer in range(num_layers))


def _by_type(reader: ConfigReader, window: int | None, num_layers: int) -> Windows:
    types = reader.texts("layer_types")
    if len(types) != num_layers or not set(types) <= {FULL, SLIDING}:
        reader.refuse("layer_types", f"{num_layers} entries, each {FULL!r} or {SLIDING!r}")
    if SLIDING in types and window is None:
        reader.refuse("layer_types", "no sliding layers, since the config gives no sliding_window")
    return tuple(window if kind == SLIDING else None for kind in types)


def layer_groups(windows: Windows) -> tuple[LayerGroup, ...]:
    """Layers of equal windows together, in the order of their first layers."""
    layers: dict[int | None, list[int]] = {}
    for layer, window in enumerate(windows):
        layers.setdefault(window, []).append(layer)
    return tuple(LayerGroup(tuple(members), window) for window, members in layers.items())
