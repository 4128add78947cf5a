"""Every test of the API may use the fixtures of `tests.api.fixtures`."""

from tests.api.fixtures import _plain_logs, http, live, recordings, settings, start_api  # noqa: F401 - pytest finds fixtures by name in this module
