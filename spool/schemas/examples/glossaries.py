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
    "auto_add_after": None,
    "created_at": "2026-11-23T09:02:11.114000Z",
    "created_by": "operator",
}

GLOSSARIES: Example = {"items": [GLOSSARY]}

SUGGESTION: Example = {
    "phrase": "Heligoland",
    "recordings": 3,
    "job": "job_01M7ZJ8XQ4T3V5W6Y7Z8A9B0C1",
    "first_word": 41,
    "last_word": 42,
}

SUGGESTIONS: Example = {"items": [SUGGESTION]}

WITH_PHRASES: Example = GLOSSARY | {"phrases": ["Heligoland", "fog horn"]}
