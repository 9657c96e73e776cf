"""The store at rest: private files, authenticated rows, a key that is never replaced."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_vault import CANARY, OWNER, URL, StoredVault

from subako_ray.schema.secret import Secret
from subako_ray.schema.target import TargetError
from subako_ray.vault import (
    KeyFileError,
    RefusedError,
    StoreError,
    TamperedError,
    TokenRefusedError,
    UnknownVaultError,
    Vaults,
    VaultSealedError,
)
from subako_ray.vault.rules import check_token

OTHER = "https://h/other"
NO_LATIN_1 = "the secret has a character outside Latin-1, which no header can carry"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_is_private_to_its_owner_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        stored = StoredVault(tmp_path)
        with stored.vaults._store.writing():
            # While it is open SQLite's side files are there too.
            files = {path.name: mode(path) for path in stored.folder.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(
        ("key", "vaults.sqlite", "vaults.sqlite-shm", "vaults.sqlite-wal"), 0o600
    )
    assert mode(stored.folder) == 0o700


def test_the_first_add_makes_the_key_and_later_ones_keep_it(tmp_path: Path) -> None:
    vaults = Vaults(tmp_path)
    first = vaults.add("acme", URL, Secret(CANARY), principal=OWNER)
    assert first.new_key == tmp_path / "vault" / "key"
    content = first.new_key.read_bytes()
    second = vaults.add("other", URL, Secret(CANARY), principal=OWNER)
    assert second.new_key is None
    assert first.new_key.read_bytes() == content


def test_adding_again_replaces_and_counts_the_version(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    added = stored.vaults.add(
        "acme", "HTTPS://H:443/mcp", Secret("new"), principal=OWNER, display_name="Orders"
    )
    again = stored.vaults.add("acme", URL, Secret("newer"), principal=OWNER)
    assert (added.credential.version, again.credential.version) == (2, 3)
    assert added.credential.id == again.credential.id
    assert again.credential.display_name == "Orders"
    assert stored.received(stored.open()) == "newer"
    (listing,) = stored.vaults.listing()
    assert listing.credentials == (again.credential,)


def test_listing_needs_no_key_and_makes_nothing(tmp_path: Path) -> None:
    assert Vaults(tmp_path).listing() == ()
    assert list(tmp_path.iterdir()) == []
    stored = StoredVault(tmp_path)
    stored.key.unlink()
    (listing,) = stored.vaults.listing("acme")
    assert [credential.target for credential in listing.credentials] == [URL]
    assert CANARY not in repr(listing)


def test_removing_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnknownVaultError, match="there is no vault `acme`"):
        Vaults(tmp_path).remove("acme", URL, principal=OWNER)
    stored = StoredVault(tmp_path)
    with pytest.raises(UnknownVaultError, match="has no credential for `https://h/other`"):
        stored.vaults.remove("acme", OTHER, principal=OWNER)


def test_without_its_key_a_vault_is_sealed_and_works_again_when_it_is_back(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    capability = stored.open()
    away = stored.key.rename(tmp_path / "away")
    for attempt in (
        lambda: stored.received(capability),
        stored.open,
        lambda: stored.add("new", OTHER),
        lambda: stored.add("new", vault="other"),
        lambda: stored.vaults.remove("acme", URL, principal=OWNER),
    ):
        with pytest.raises(VaultSealedError, match="is sealed") as raised:
            attempt()
        assert "put your copy of the key back" in str(raised.value.help_text)
    assert not stored.key.exists()
    away.rename(stored.key)
    assert stored.received(capability) == CANARY


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o620, 0o601])
def test_a_key_file_that_others_can_use_is_refused(tmp_path: Path, bits: int) -> None:
    stored = StoredVault(tmp_path)
    stored.key.chmod(bits)
    with pytest.raises(KeyFileError, match="is open to other users"):
        stored.open()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_file_or_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    os.chown(stored.key, 12_345, -1)
    with pytest.raises(KeyFileError, match="belongs to another user"):
        stored.open()
    os.chown(stored.folder, 12_345, -1)
    with pytest.raises(StoreError, match="belongs to another user"):
        stored.open()


def test_a_key_file_that_is_a_link_a_pipe_or_no_key_is_refused(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    away = stored.key.rename(tmp_path / "away")
    stored.key.symlink_to(away)
    with pytest.raises(KeyFileError, match="is not a file that can be read"):
        stored.open()
    stored.key.unlink()
    os.mkfifo(stored.key, 0o600)
    with pytest.raises(KeyFileError, match="is not a file that can be read"):
        stored.open()
    stored.key.unlink()
    for content in (b"", b"\xff\x00", away.read_bytes()[:-6], b"subako.key/2" + b" eA==\n"):
        stored.key.write_bytes(content)
        stored.key.chmod(0o600)
        with pytest.raises(KeyFileError, match="holds no vault key"):
            stored.open()


def test_the_key_of_another_store_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = StoredVault(tmp_path / "a"), StoredVault(tmp_path / "b")
    one.key.write_bytes(other.key.read_bytes())
    with pytest.raises(KeyFileError, match="is not the key of this vault store"):
        one.open()


def test_a_key_put_back_into_an_empty_state_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = StoredVault(tmp_path / "a")
    folder = tmp_path / "b" / "vault"
    folder.mkdir(mode=0o700)
    one.key.rename(folder / "key")
    content = (folder / "key").read_bytes()
    other = StoredVault(tmp_path / "b")
    assert other.key.read_bytes() == content
    assert other.received(other.open()) == CANARY


def test_a_store_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.folder.chmod(0o750)
    with pytest.raises(StoreError, match="is open to other users"):
        stored.open()


def test_a_store_of_a_newer_format_or_without_format_is_refused(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.sql("PRAGMA user_version = 2")
    with pytest.raises(StoreError, match="has format 2"):
        stored.open()
    stored.database.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="is damaged"):
        stored.open()


PAYLOADS_SWAPPED = (
    "UPDATE credential SET (wrapped_key, payload) = (SELECT wrapped_key, payload "
    "FROM credential AS other WHERE other.target <> credential.target)"
)


@pytest.mark.parametrize(
    "statements",
    [
        (PAYLOADS_SWAPPED,),
        (
            "UPDATE credential SET target = 'x' WHERE target = 'https://h/mcp'",
            "UPDATE credential SET target = 'https://h/mcp' WHERE target = 'https://h/other'",
            "UPDATE credential SET target = 'https://h/other' WHERE target = 'x'",
        ),
        ("UPDATE credential SET version = version + 1",),
        ("UPDATE credential SET display_name = 'other'",),
        ("UPDATE credential SET payload = zeroblob(40)",),
        ("UPDATE credential SET payload = x'00'",),
        ("UPDATE credential SET wrapped_key = substr(wrapped_key, 2)",),
        ("DELETE FROM credential WHERE target = 'https://h/other'",),
        ('UPDATE vault SET principals = \'["user:owner", "user:guest"]\'',),
        ("UPDATE vault SET principals = 'x'",),
        ("UPDATE vault SET creator = 'user:guest'",),
        ("UPDATE vault SET seal = zeroblob(32)",),
    ],
)
def test_a_row_that_was_changed_without_the_key_hands_nothing_out(
    tmp_path: Path, statements: tuple[str, ...]
) -> None:
    stored = StoredVault(tmp_path)
    stored.add("other", OTHER)
    capability = stored.open()
    for statement in statements:
        stored.sql(statement)
    with pytest.raises(TamperedError, match="is not as it was stored"):
        stored.received(capability)


def test_two_vaults_that_change_names_hand_nothing_out(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.add("other", vault="other")
    stored.sql("UPDATE vault SET name = 'x' WHERE name = 'acme'")
    stored.sql("UPDATE vault SET name = 'acme' WHERE name = 'other'")
    with pytest.raises(TamperedError):
        stored.open("acme")


@pytest.mark.parametrize("columns", ["*", "wrapped_key, payload"])
def test_an_older_row_put_back_hands_nothing_out(tmp_path: Path, columns: str) -> None:
    stored = StoredVault(tmp_path)
    stored.sql("CREATE TABLE kept AS SELECT * FROM credential")
    stored.add("rotated")
    capability = stored.open()
    if columns == "*":
        stored.sql("DELETE FROM credential")
        stored.sql("INSERT INTO credential SELECT * FROM kept")
    else:
        stored.sql(
            "UPDATE credential SET (wrapped_key, payload) = (SELECT wrapped_key, payload FROM kept)"
        )
    with pytest.raises(TamperedError):
        stored.received(capability)


def test_the_payload_alone_is_bound_to_its_row(tmp_path: Path) -> None:
    # The seal over the vault does not see payloads: this is the associated data's own work.
    stored = StoredVault(tmp_path)
    stored.add("other", OTHER)
    stored.sql(PAYLOADS_SWAPPED)
    with pytest.raises(TamperedError, match="the credential `crd_"):
        stored.received(stored.open())


def test_one_bad_vault_is_not_passed_over_for_the_next(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.add("second", vault="other")
    capability = stored.open("acme", "other")
    stored.sql("DELETE FROM credential WHERE vault_id = (SELECT id FROM vault WHERE name = 'acme')")
    with pytest.raises(TamperedError, match="the vault `acme`"):
        stored.received(capability)


def test_first_adds_at_once_share_one_key_and_lose_nothing(tmp_path: Path) -> None:
    # Each opens the files for itself, as processes of their own would.
    together = threading.Barrier(8)

    def add(number: int) -> int:
        together.wait(timeout=60)
        token = Secret(str(number))
        added = Vaults(tmp_path).add("acme", f"https://h/{number}", token, principal=OWNER)
        return int(added.new_key is not None)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(add, range(8), timeout=60)) == 1
    stored = StoredVault(tmp_path)
    targets = tuple(f"https://h/{number}" for number in range(8))
    capability = stored.open(targets=targets)
    assert [stored.received(capability, target) for target in targets] == list("01234567")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("", "the secret is empty"),
        (" \t ", "the secret is blank"),
        ("\xa0", "the secret is blank"),
        (f"{CANARY}\n", "the secret has a line break in it"),
        (f"{CANARY}\r\nX-Other: 1", "the secret has a line break in it"),
        (f"{CANARY}\x00", "the secret has a control character"),
        (f"{CANARY}\tx", "the secret has a control character"),
        (f"{CANARY}\x85x", "the secret has a control character"),
        (f"{CANARY}\u20ac", NO_LATIN_1),
        (f"{CANARY}\udcff", NO_LATIN_1),
        (f" {CANARY}", "the secret begins or ends with a blank"),
        (f"{CANARY} ", "the secret begins or ends with a blank"),
        (CANARY + "x" * 8192, "the secret has more than 8192 bytes"),
    ],
)
def test_c5_a_value_that_no_header_can_carry_is_refused_when_stored(
    tmp_path: Path, token: str, message: str
) -> None:
    with pytest.raises(TokenRefusedError) as raised:
        Vaults(tmp_path).add("acme", URL, Secret(token), principal=OWNER)
    assert raised.value.message == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("token", ["x", "a b", "sbk_ak_1+/=", "caf\xe9", "x" * 8192])
def test_a_value_that_a_header_can_carry_comes_back_unchanged(tmp_path: Path, token: str) -> None:
    stored = StoredVault(tmp_path)
    stored.add(token)
    assert stored.received(stored.open()) == token


@given(st.text(max_size=40))
def test_a_stored_value_is_never_an_empty_or_a_split_header(token: str) -> None:
    try:
        check_token(Secret(token))
    except TokenRefusedError as error:
        refused = error.message
        assert len(token.strip()) < 2 or token not in refused
        return
    header = b"Bearer " + token.encode("latin-1")
    assert header.strip() == header
    assert not set(header) & {0, 10, 13}


@pytest.mark.parametrize("name", ["", "Acme", "a b", "../acme", "-a", "a\n", "a" * 65, "caf\xe9"])
def test_a_name_that_is_none_is_refused_and_not_repeated(tmp_path: Path, name: str) -> None:
    vaults = Vaults(tmp_path)
    message = "the vault name is not of the form `[a-z0-9][a-z0-9._-]*` with at most 64 characters"
    for attempt in (
        lambda: vaults.add(name, URL, Secret(CANARY), principal=OWNER),
        lambda: vaults.remove(name, URL, principal=OWNER),
        lambda: vaults.listing(name),
        lambda: vaults.authorize(name, OWNER, by=OWNER),
    ):
        with pytest.raises(RefusedError) as raised:
            attempt()
        assert raised.value.message == message


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\u202eb", "a" * 201])
def test_a_display_name_that_cannot_be_shown_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedError, match="the display name"):
        Vaults(tmp_path).add("acme", URL, Secret(CANARY), principal=OWNER, display_name=name)


def test_a_target_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        Vaults(tmp_path).add("acme", "h/mcp", Secret(CANARY), principal=OWNER)
    assert list(tmp_path.iterdir()) == []
