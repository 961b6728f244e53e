"""The cache whose entries expire."""

from __future__ import annotations

from webhook.cluster.expiring_cache import ExpiringCache


def test_new_entry_of_a_full_cache_replaces_the_oldest_one_only() -> None:
    cache = ExpiringCache[str, int](10.0, 3, lambda: 0.0)
    for value, key in enumerate("abcad"):
        cache.put(key, value)
    assert [cache.get(key) for key in "abcd"] == [3, None, 2, 4]


def test_entry_expires() -> None:
    now = 100.0
    cache = ExpiringCache[str, int](10.0, 3, lambda: now)
    cache.put("a", 1)
    now += 9.9
    assert cache.get("a") == 1
    now += 0.1
    assert cache.get("a") is None
