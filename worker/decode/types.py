"""Requests and options of searches, as `worker.models.requests` declares them for searches and families."""

from worker.models.requests import CONTEXT_TOKENS, Decoder, DecodeRequest, Head, SearchOptions, Task

__all__ = ["CONTEXT_TOKENS", "DecodeRequest", "Decoder", "Head", "SearchOptions", "Task"]
