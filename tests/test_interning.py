"""The table that keeps equal things one."""

from __future__ import annotations

import pytest

from pullback.interning import Interned


class Thing:
    pass


def test_dead_entries_do_not_pile_up():
    table: Interned[Thing] = Interned()
    kept = [table.intern(("kept", k), Thing) for k in range(10)]
    for k in range(10_000):
        table.intern(k, Thing)
    assert len(table.references) <= 1024
    assert len(table) == 10 and table.intern(("kept", 3), Thing) is kept[3]


def test_an_error_enters_nothing():
    table: Interned[Thing] = Interned()
    with pytest.raises(ZeroDivisionError):
        table.intern(1, lambda: 1 // 0)
    thing = table.intern(1, Thing)
    assert table.intern(1, Thing) is thing
