"""How often one may ask: the buckets by themselves, and behind the routes."""

from collections.abc import Callable

import pytest

from api.auth.rate_limit import Buckets, address_name
from ops.testbed.running_api import Live, problem
from spool.domain import mint_key
from spool.settings import Settings
from tests.api.auth.keys import bearer, get, new_key


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_empties_and_fills_again() -> None:
    clock = Clock()
    buckets = Buckets(rate=2.0, burst=3, read_clock=clock)

    taken = [buckets.take("a") for _ in range(4)]

    assert [each.allowed for each in taken if each] == [True, True, True, False]
    assert [each.left for each in taken if each] == [2, 1, 0, 0]
    refused = taken[3]
    assert refused is not None
    assert refused.headers() == {
        "RateLimit-Policy": '"requests";q=3;w=2',
        "RateLimit": '"requests";r=0;t=2',
        "Retry-After": "1",
    }
    other = buckets.take("b")
    assert other is not None
    assert other.allowed
    clock.now += 0.5
    again = [buckets.take("a") for _ in range(2)]
    assert [each.allowed for each in again if each] == [True, False]
    clock.now += 1000
    full = buckets.take("a", cost=0)
    assert full is not None
    assert full.left == 3


def test_a_rate_of_nothing_limits_nobody() -> None:
    assert Buckets(rate=0, burst=1).take("a") is None


def test_only_so_many_callers_are_remembered() -> None:
    buckets = Buckets(rate=1.0, burst=5, read_clock=Clock())
    for number in range(20_001):
        buckets.take(f"caller {number}")
    assert len(buckets._held) == 10_000


def test_a_household_has_one_address() -> None:
    assert address_name("2001:db8::1") == address_name("2001:db8::ffff:2") == "address 2001:db8::/64"
    assert address_name("::ffff:10.0.0.1") == address_name("10.0.0.1") == "address 10.0.0.1"
    assert address_name("fe80::1%eth0") == "address fe80::/64"
    assert address_name(None) == "address nowhere"


@pytest.fixture
def slow_live(settings: Settings, start_api: Callable[[Settings], Live]) -> Live:
    # So slow that no machine is slow enough for a request to come back while the test runs
    return start_api(settings.model_copy(update={"rate_limit": 0.0001, "rate_burst": 3}))


def test_an_address_without_a_key_is_limited(slow_live: Live) -> None:
    url = f"{slow_live.url}/v1/models"
    left = [get(url).headers["ratelimit"] for _ in range(3)]
    assert [each.split(";")[1] for each in left] == ["r=2", "r=1", "r=0"]

    refused = get(url)

    problem(refused, 429, "rate_limited")
    assert int(refused.headers["retry-after"]) > 60
    assert refused.headers["ratelimit-policy"].startswith('"requests";q=3;')
    # Health is no question of keys or limits
    assert all(get(f"{slow_live.url}/healthz").status_code == 200 for _ in range(5))


def test_each_key_has_its_own_limit(slow_live: Live) -> None:
    url, database = f"{slow_live.url}/v1/models", slow_live.services.database
    greedy, modest = bearer(new_key(database)), bearer(new_key(database))
    assert [get(url, headers=greedy).status_code for _ in range(4)] == [200, 200, 200, 429]
    assert get(url, headers=modest).status_code == 200


def test_whoever_guesses_keys_is_not_let_through_to_the_database(
    settings: Settings, start_api: Callable[[Settings], Live]
) -> None:
    live = start_api(settings)
    live.services.misses._rate, live.services.misses._burst = 0.0001, 3
    url, known = f"{live.url}/v1/models", bearer(new_key(live.services.database))
    assert get(url, headers=known).status_code == 200

    statuses = [get(url, headers=bearer(mint_key().text)).status_code for _ in range(5)]

    assert statuses == [401, 401, 401, 429, 429]
    problem(get(url, headers=bearer("rubbish")), 429, "rate_limited")
    # A key that was seen before still opens, from the same address
    live.services.key_cache._known = type(live.services.key_cache._known)(
        (key_id, (key, float("-inf"))) for key_id, (key, _) in live.services.key_cache._known.items()
    )
    assert get(url, headers=known).status_code == 200
