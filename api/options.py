"""What a request may ask of the search: judged by the settings, and shown on the OpenAPI page.

Jobs and the lines of batches are judged alike. Knows names of models, not what they are.
"""

from collections.abc import Mapping
from typing import Any

from spool.errors import UnknownModel
from spool.jobs import AskedOptions
from spool.settings import Settings

Schema = dict[str, Any]


def judged(settings: Settings, *told: Mapping[str, Any]) -> AskedOptions:
    """The options of `told`, the later ones over the earlier, over the server's own.

    Raises pydantic's ValidationError, and UnknownModel.
    """
    asked: dict[str, Any] = {"model": settings.default_model}
    for each in told:
        asked |= each
    known = {"language_models": sorted(settings.language_models)}
    options = AskedOptions.model_validate(asked, context=known)
    if options.model not in settings.models:
        raise UnknownModel(
            f"There is no model {options.model!r}; known here: {', '.join(sorted(settings.models))}."
        )
    return options


def option_schema() -> dict[str, Any]:
    """The options as the OpenAPI page shows them in a request: nothing in it points elsewhere."""
    schema = AskedOptions.model_json_schema()
    parts = schema.get("$defs", {})

    def whole(node: Any) -> Any:  # noqa: ANN401 - JSON
        if isinstance(node, list):
            return [whole(each) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            told = {key: value for key, value in node.items() if key != "$ref"}
            return whole(parts[node["$ref"].rpartition("/")[2]]) | whole(told)
        return {key: whole(value) for key, value in node.items()}

    return {"properties": whole(schema["properties"])}
