"""The client is tested against the real API, and uses the fixtures of `tests.api.fixtures`."""

from tests.api.fixtures import _plain_logs, live, recordings, settings, start_api  # noqa: F401 - pytest finds fixtures by name in this module
