"""The package's own files as this process has loaded them: what stored machine code depends on."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Iterator
from importlib.machinery import all_suffixes

__all__ = ["package_digest", "unchanged"]

_LOADED = time.time_ns()
"""When the package began to be imported; later changes of its files may or may not be in what was loaded."""

_CLOCK_STEP = 20_000_000
"""File systems date changes by a clock that is coarser, in nanoseconds."""


@functools.lru_cache(maxsize=1)
def package_digest() -> str | None:
    """A digest of the package's files; None where they cannot be read or have changed since they were imported.

    Contents count, not sizes and times, so that no edit goes unnoticed. An installation without sources has its
    bytecode read instead, one in an archive the archive.
    """
    import hashlib  # not with the package: it is slow to load

    digest = hashlib.blake2b(digest_size=32)
    found = False
    try:
        for name, path in _files():
            with open(path, "rb", buffering=0) as file:
                if _changed(os.fstat(file.fileno())):
                    return None
                data = file.read()
            digest.update(b"%d %d\n" % (len(name), len(data)) + name.encode() + data)
            found = True
    except OSError:
        return None
    return digest.hexdigest() if found else None


def unchanged() -> bool:
    """Whether the files are still those of ``package_digest``: modules are imported late, also after it was asked."""
    try:
        return package_digest() is not None and not any(_changed(os.stat(path)) for _, path in _files())
    except OSError:
        return False


def _changed(state: os.stat_result) -> bool:
    # A file's own change cannot be dated back, as its contents' can; on Windows the field is when it was created.
    changed = state.st_mtime_ns if sys.platform == "win32" else state.st_ctime_ns
    return changed > _LOADED - _CLOCK_STEP


def _files() -> Iterator[tuple[str, str]]:
    """Name within the package and path of each file that a module may come from, in order."""
    root = os.path.dirname(__file__)
    if not os.path.isdir(root):
        archive = getattr(sys.modules[__package__].__loader__, "archive", None)
        if archive is not None:
            yield "", archive
        return
    suffixes = tuple(all_suffixes())
    folders = [root]
    for folder in folders:
        with os.scandir(folder) as listing:
            items = sorted(listing, key=lambda item: item.name)
        for item in items:
            if item.name.endswith(suffixes):
                yield item.path[len(root) :], item.path
            elif item.is_dir() and item.name != "__pycache__":
                folders.append(item.path)
