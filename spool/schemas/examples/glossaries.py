"""Examples of glossaries and language models for the OpenAPI page."""

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

LANGUAGE_MODEL_REQUEST: Example = {"name": "parish-registers", "model": "parakeet"}

LANGUAGE_MODEL: Example = {
    "name": "parish-registers",
    "version": 1,
    "project": "default",
    "sha256": "9c0f…",
    "size": 4_718_592,
    "ngram_order": 4,
    "ngrams": 121_408,
    "model": "parakeet",
    "created_at": "2026-11-23T09:02:11.114000Z",
    "created_by": "operator",
}

LANGUAGE_MODELS: Example = {"items": [LANGUAGE_MODEL]}
