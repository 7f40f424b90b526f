"""Laws of the byte-counted cache."""

from qwenvl.cache import ByteLRU


def test_bytes_never_exceed_the_budget_and_the_least_recently_used_leaves_first():
    cache = ByteLRU(100)
    cache.put("a", 1, 40)
    cache.put("b", 2, 40)
    assert cache.get("a") == 1  # now b is the oldest
    cache.put("c", 3, 40)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert cache.stats().bytes == 80


def test_an_entry_larger_than_the_budget_is_not_kept_and_evicts_nothing():
    cache = ByteLRU(100)
    cache.put("small", 1, 10)
    cache.put("huge", 2, 101)
    assert cache.get("huge") is None
    assert cache.get("small") == 1


def test_replacing_an_entry_counts_its_bytes_once():
    cache = ByteLRU(100)
    cache.put("a", 1, 60)
    cache.put("a", 2, 50)
    assert cache.get("a") == 2
    assert (cache.stats().entries, cache.stats().bytes) == (1, 50)


def test_a_replacement_too_large_to_keep_does_not_leave_the_old_value():
    cache = ByteLRU(100)
    cache.put("a", 1, 60)
    cache.put("a", 2, 101)
    assert cache.get("a") is None
    assert cache.stats().bytes == 0


def test_drop_removes_what_the_predicate_names():
    cache = ByteLRU(100)
    for key in [("x", 1), ("x", 2), ("y", 1)]:
        cache.put(key, key, 10)
    assert cache.drop(lambda key: key[0] == "x") == 2
    assert cache.get(("y", 1)) == ("y", 1)
    assert cache.stats().bytes == 10


def test_hits_and_misses_are_counted():
    cache = ByteLRU(100)
    cache.put("a", 1, 1)
    cache.get("a"), cache.get("a"), cache.get("b")
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries, stats.max_bytes) == (2, 1, 1, 100)


def test_a_budget_of_zero_keeps_nothing():
    cache = ByteLRU(0)
    cache.put("a", 1, 1)
    assert cache.get("a") is None
