"""Examples of glossaries for the OpenAPI page."""

from typing import Any

Example = dict[str, Any]

REQUEST: Example = {"name": "lighthouses", "phrases": ["Heligoland", "fog horn"], "weight": 1.5}

GLOSSARY: Example = {
    "name": "lighthouses",
    "version": 2,
    "project": "default",
    "count": 2,
    "sha256": "5d1c…",
    "weight": 1.5,
    "created_at": "2026-11-23T09:02:11.114000Z",
    "created_by": "operator",
}

GLOSSARIES: Example = {"items": [GLOSSARY]}

WITH_PHRASES: Example = GLOSSARY | {"phrases": ["Heligoland", "fog horn"]}
