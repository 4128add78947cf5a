"""How to transcribe, as the schema of a request shows it."""

from typing import Any

from spool.jobs import AskedOptions


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
