"""The archive in SQL: sources, uploads, versions, outputs, glossaries and language models."""
