"""What the tests of the commands share."""

from __future__ import annotations

import pytest

from pullback.errors import DownloadError


@pytest.fixture
def digits_only(monkeypatch, tmp_path):
    """No MNIST on this machine and no network; results go to a folder of the test's own."""

    def refuse(*_, **__):
        raise DownloadError("no network here")

    monkeypatch.setattr("pullback.data.digits.load_mnist", refuse)
    monkeypatch.chdir(tmp_path)
