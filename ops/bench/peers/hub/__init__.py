"""The families of 2026 beside transformers, on the same random weights of the published sizes."""
