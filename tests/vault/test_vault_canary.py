"""C4, R3: a canary in a vault, then every failure; it is in no text and in no file."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_vault import CANARY, OWNER, URL, StoredVault

from subako_ray.schema.secret import Secret
from subako_ray.vault import (
    KeyFileError,
    NotPermittedError,
    Recipient,
    RefusedError,
    SealedCredential,
    SealingError,
    StoreError,
    TamperedError,
    TokenRefusedError,
    UnknownCapabilityError,
    UnknownVaultError,
    VaultError,
    VaultSealedError,
)

ERRORS: list[type[VaultError]] = [
    KeyFileError,
    NotPermittedError,
    RefusedError,
    SealingError,
    StoreError,
    TamperedError,
    TokenRefusedError,
    UnknownCapabilityError,
    UnknownVaultError,
    VaultError,
    VaultSealedError,
]


def unseal_with_another_key(stored: StoredVault) -> None:
    asker, other = Recipient("s1", URL), Recipient("s1", URL)
    answer = stored.access.fetch(stored.open(), URL, asker.public_key)
    assert isinstance(answer, SealedCredential)
    other.unseal(answer)


def with_changed_row(statement: str) -> Callable[[StoredVault], object]:
    def fail(stored: StoredVault) -> None:
        capability = stored.open()
        stored.sql(statement)
        stored.received(capability)

    return fail


def without_key(stored: StoredVault) -> None:
    stored.key.unlink()
    stored.add(CANARY)


def with_damaged_store(stored: StoredVault) -> None:
    stored.database.write_bytes(b"rubbish" * 1000)
    stored.add(CANARY)


FAILURES: dict[str, Callable[[StoredVault], object]] = {
    "bad recipient key": lambda stored: stored.access.fetch(stored.open(), URL, bytes(32)),
    "another recipient": unseal_with_another_key,
    "unknown capability": lambda stored: stored.received("made up"),
    "payload changed": with_changed_row("UPDATE credential SET payload = zeroblob(40)"),
    "key changed": with_changed_row("UPDATE credential SET wrapped_key = x'00'"),
    "row changed": with_changed_row("UPDATE credential SET version = 7"),
    "sealed": without_key,
    "damaged": with_damaged_store,
    "line break": lambda stored: stored.add(f"{CANARY}\nx"),
    "not Latin-1": lambda stored: stored.add(f"{CANARY}\u20ac"),
    "not UTF-8": lambda stored: stored.add(f"{CANARY}\udcff"),
    "too long": lambda stored: stored.add(CANARY * 1000),
    "as vault name": lambda stored: stored.add("x", vault=f"{CANARY}!"),
    "as target": lambda stored: stored.add("x", target=CANARY),
    "in a target": lambda stored: stored.add("x", target=f"https://u:{CANARY}@h/mcp"),
    "as display name": lambda stored: stored.vaults.add(
        "acme", URL, Secret("x"), principal=OWNER, display_name=f"{CANARY}\n"
    ),
    "pickled": lambda _: pickle.dumps(Secret(CANARY)),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_no_failure_says_the_secret(
    tmp_path: Path, failure: Callable[[StoredVault], object], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    stored = StoredVault(tmp_path)
    with pytest.raises(Exception) as raised:
        failure(stored)
    error = raised.value
    texts = ["".join(traceback.format_exception(error)), caplog.text]
    chained: BaseException | None = error
    while chained is not None:
        texts += [str(chained), repr(chained), repr(vars(chained)), repr(chained.args)]
        chained = chained.__context__
    assert CANARY not in "\n".join(texts)


def test_no_file_of_the_state_folder_holds_the_secret(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.received(stored.open())
    with stored.vaults._store.writing():
        stored_bytes = {path.name: path.read_bytes() for path in stored.folder.iterdir()}
    assert stored_bytes.keys() >= {"key", "vaults.sqlite", "vaults.sqlite-wal"}
    for name, content in stored_bytes.items():
        assert CANARY.encode() not in content, name
    assert URL.encode() in stored_bytes["vaults.sqlite"]


def test_what_is_removed_or_replaced_is_overwritten_in_the_file(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    ((replaced,),) = stored.sql("SELECT payload FROM credential")
    stored.add("second")
    ((removed,),) = stored.sql("SELECT payload FROM credential")
    stored.vaults.remove("acme", URL, principal=OWNER)
    assert isinstance(replaced, bytes)
    assert isinstance(removed, bytes)
    for path in stored.folder.iterdir():
        assert replaced not in path.read_bytes()
        assert removed not in path.read_bytes()


@pytest.mark.parametrize("kind", ERRORS)
def test_r2_each_error_crosses_processes_as_it_is(kind: type[VaultError]) -> None:
    copied = pickle.loads(pickle.dumps(kind("what", "help")))
    assert type(copied) is kind
    assert (copied.message, copied.help_text, str(copied)) == ("what", "help", "what")
