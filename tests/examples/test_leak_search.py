"""The search that the demo ends with finds a secret wherever it hides."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from scripts.leak_search import search

SECRET = b"kQ-7_canary.of~the+tests/1"


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        SECRET.hex().encode(),
        b"Authorization: Bearer " + SECRET + b"\r\n",
        base64.b64encode(SECRET),
        base64.b64encode(b"x" + SECRET + b"y"),
        base64.b64encode(b"xy" + SECRET + b"zzz"),
        b"?token=kQ-7_canary.of~the%2Btests/1&x=1",
    ],
)
def test_a_secret_is_found_in_every_form(tmp_path: Path, written: bytes) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "log").write_bytes(b"\0" * 5000 + written + b"\0" * 5000)

    assert search([tmp_path], SECRET).found == (tmp_path / "deep" / "er" / "log",)


def test_a_clean_folder_is_counted_and_clean(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(SECRET[:-1])
    (tmp_path / "two").write_bytes(SECRET[1:])
    (tmp_path / "empty").touch()

    searched = search([tmp_path], SECRET)

    assert searched.found == ()
    assert (searched.files, searched.size_bytes) == (3, 2 * (len(SECRET) - 1))
