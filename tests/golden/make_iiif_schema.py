"""Writes schemas/iiif-manifest.json. Needs iiif-prezi3==3.1.1, in an environment of its own."""

import json
from pathlib import Path

from iiif_prezi3 import Manifest

SCHEMA = Path(__file__).parent / "schemas" / "iiif-manifest.json"

if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(Manifest.model_json_schema(), separators=(",", ":"), sort_keys=True) + "\n")
