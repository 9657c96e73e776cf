"""Bundles: packing and reading are inverse, and what packing does not write is refused (B4)."""

from __future__ import annotations

import contextlib
import hashlib
import io
import stat
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subako_ray.schema import limits
from subako_ray.schema.bundle import Bundle, BundleError, BundleFile, pack, read, unpack

PARTS = st.text(
    alphabet=st.characters(codec="utf-8", exclude_characters="/").filter(str.isprintable),
    min_size=1,
    max_size=12,
).filter(lambda part: part not in (".", "..") and len(part.encode()) < 40)
FILES = st.builds(
    BundleFile,
    path=st.lists(PARTS, min_size=1, max_size=3).map("/".join),
    data=st.binary(max_size=1100),
    executable=st.booleans(),
)


@given(files=st.lists(FILES, max_size=5))
def test_reading_gives_back_what_was_packed_or_packing_refuses(files: list[BundleFile]) -> None:
    try:
        bundle = pack(files)
    except BundleError:
        names = [file.path for file in files]
        assert len(set(names)) < len(names) or any(
            other.startswith(f"{name}/") for name in names for other in names
        )
        return

    assert read(bundle.data) == tuple(sorted(files, key=lambda file: file.path.encode()))
    assert pack(reversed(files)) == bundle


def test_unpacking_writes_the_files_with_their_modes(tmp_path: Path) -> None:
    files = [
        BundleFile(path="run", data=b"#!", executable=True),
        BundleFile(path="a/b/c.txt", data=b"text"),
    ]
    bundle = pack(files)

    unpack(bundle.data, bundle.digest, tmp_path / "out")
    unpack(bundle.data, bundle.digest, tmp_path / "out")

    found = {p.relative_to(tmp_path).as_posix(): p.stat().st_mode for p in tmp_path.rglob("*")}
    assert {name: stat.S_IMODE(mode) for name, mode in found.items()} == {
        "out": 0o755,
        "out/run": 0o755,
        "out/a": 0o755,
        "out/a/b": 0o755,
        "out/a/b/c.txt": 0o644,
    }


def test_another_digest_writes_nothing(tmp_path: Path) -> None:
    bundle = pack([BundleFile(path="a", data=b"a")])

    with pytest.raises(BundleError, match="digest"):
        unpack(bundle.data, "sha256:" + "0" * 64, tmp_path / "out")

    assert list(tmp_path.iterdir()) == []


def packed(tar: bytes) -> Bundle:
    """A tar as another program would make it, under its true digest."""
    compressor = zlib.compressobj(wbits=31)
    digest = "sha256:" + hashlib.sha256(tar).hexdigest()
    return Bundle(digest, compressor.compress(tar) + compressor.flush())


def archive(*names: str, form: int = tarfile.USTAR_FORMAT, **fields: object) -> Bundle:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=form) as tar:
        for name in names:
            entry = tarfile.TarInfo(name)
            for field, value in fields.items():
                setattr(entry, field, value)
            tar.addfile(entry)
    return packed(written.getvalue())


def head(size: int) -> bytes:
    entry = tarfile.TarInfo("big")
    entry.size = size
    return entry.tobuf(tarfile.USTAR_FORMAT)


HOSTILE = {
    "`l` is a symbolic link": archive("l", type=tarfile.SYMTYPE, linkname="/etc"),
    "`l` is a hard link": archive("l", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
    "`d` is a device": archive("d", type=tarfile.CHRTYPE, devmajor=1, devminor=5),
    "`p` is a named pipe": archive("p", type=tarfile.FIFOTYPE),
    "`d/` is a folder entry": archive("d", type=tarfile.DIRTYPE),
    "`../x` leads out": archive("../x"),
    "`/x` leads out": archive("/x"),
    "`a/../../x` leads out": archive("a/../../x"),
    "`./x` leads out": archive("./x"),
    "is an extension of the format": archive("x" * 300, form=tarfile.PAX_FORMAT),
    "not a USTAR archive": archive("x", form=tarfile.GNU_FORMAT, type=tarfile.GNUTYPE_SPARSE),
    "`big` is cut short": packed(head(8 * 1024**3 - 1)),
    "more than 10485760 bytes": packed(bytes(2 * limits.BUNDLE_BYTES)),
    "more than 1000 files": archive(*(str(number) for number in range(1001))),
    "`x` stands twice": archive("x", "x"),
    "`x` is both a file and a folder": archive("x", "x/y"),
    "not in the form": archive("x", mtime=5),
    "holds a character that cannot be printed": archive("x\n"),
    "a name is not UTF-8": archive("x\udcff"),
    "not a gzip file": Bundle("sha256:" + "0" * 64, b"PK"),
}


@pytest.mark.parametrize("message", HOSTILE)
def test_b4_an_odd_archive_is_refused_by_name_and_writes_nothing(
    tmp_path: Path, message: str
) -> None:
    with pytest.raises(BundleError) as refused:
        read(HOSTILE[message].data)
    assert message in str(refused.value)

    with pytest.raises(BundleError):
        unpack(HOSTILE[message].data, HOSTILE[message].digest, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@given(data=st.binary(max_size=1600), shrink=st.booleans())
def test_reading_never_fails_otherwise(data: bytes, shrink: bool) -> None:
    with contextlib.suppress(BundleError):
        read(packed(data).data[: -1 if shrink else None])
