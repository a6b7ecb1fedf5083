"""The JSON Schema of the configuration, with the sections of the selected plugins."""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from jackfield.core.host.config import SECTIONS, Config
from jackfield.core.host.contract import config_class
from jackfield.core.host.selection import Selected

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def config_schema(selected: Sequence[Selected]) -> dict[str, Any]:
    """One document that validates a whole configuration file."""
    plugins = {
        (one.section, one.found.name): config_class(one.loaded.cls) for one in selected
    }
    models: dict[type[BaseModel], None] = dict.fromkeys(
        [Config, *SECTIONS.values(), *plugins.values()]
    )
    references, schema = models_json_schema([(model, "validation") for model in models])
    for (section, name), model in plugins.items():
        owner = references[SECTIONS[section], "validation"]["$ref"].rpartition("/")[2]
        schema["$defs"][owner]["properties"][name] = references[model, "validation"]
    return {"$schema": DIALECT, **references[Config, "validation"], **schema}
