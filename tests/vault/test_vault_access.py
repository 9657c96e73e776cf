"""What a session gets from its vaults: exact matches, sealed, and nothing else."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from stored_vault import CANARY, OWNER, URL, StoredVault

from subako_ray.schema.secret import Secret
from subako_ray.vault import (
    Miss,
    NotPermittedError,
    Recipient,
    RefusedError,
    SealedCredential,
    SealingError,
    UnknownCapabilityError,
    UnknownVaultError,
    VaultAccess,
)


def ask(stored: StoredVault, capability: str, target: str) -> SealedCredential | Miss:
    return stored.access.fetch(capability, target, Recipient("s1", target).public_key)


def test_a_session_gets_the_credential_of_its_target(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    assert stored.received(stored.open()) == CANARY


@pytest.mark.parametrize(
    ("held", "difference"),
    [
        ("https://h", "path: it has none"),
        ("https://h/", "path: `/`"),
        ("https://h/mcp/", "path: `/mcp/`"),
        ("https://h/mcp?x=1", "query string"),
        ("https://h/mcpevil", "path: `/mcpevil`"),
        ("https://h.evil/mcp", "host: `h.evil`"),
        ("http://h/mcp", "scheme: `http`"),
    ],
)
def test_c2_a_credential_for_another_url_is_a_miss_that_says_what_is_near(
    tmp_path: Path, held: str, difference: str
) -> None:
    stored = StoredVault(tmp_path)
    stored.vaults.remove("acme", URL, principal=OWNER)
    stored.add(CANARY, held)
    answer = ask(stored, stored.open(), URL)
    assert answer == Miss(
        reason="no_credential",
        message="there is no credential for `https://h/mcp` in `acme`",
        near_miss=f"the vault `acme` has a credential that differs in its {difference}",
    )


def test_c2_case_of_the_host_and_the_default_port_make_no_difference(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.vaults.remove("acme", URL, principal=OWNER)
    stored.add(CANARY, "https://H:443/mcp")
    assert stored.received(stored.open(), URL) == CANARY


def test_the_nearest_of_several_credentials_is_named(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.add("other", "https://h/a")
    answer = ask(stored, stored.open(targets=("https://h/mcp/",)), "https://h/mcp/")
    assert isinstance(answer, Miss)
    assert answer.near_miss == "the vault `acme` has a credential that differs in its path: `/mcp`"


def test_a_target_that_the_plan_does_not_name_is_a_miss_although_there_is_a_credential(
    tmp_path: Path,
) -> None:
    stored = StoredVault(tmp_path)
    capability = stored.open(targets=("https://h/mcp/",))
    assert stored.received(capability, URL) == "miss: not_in_plan"


def test_the_first_vault_that_has_a_credential_wins(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.add("second", vault="other")
    stored.add("elsewhere", "https://h/x", vault="empty")
    assert stored.received(stored.open("empty", "acme", "other")) == CANARY
    assert stored.received(stored.open("empty", "other", "acme")) == "second"


def test_a_session_without_vaults_misses(tmp_path: Path) -> None:
    access = VaultAccess(tmp_path)
    capability = access.open("s1", [], [URL], OWNER)
    answer = access.fetch(capability, URL, Recipient("s1", URL).public_key)
    assert answer == Miss(
        reason="no_credential",
        message="there is no credential for `https://h/mcp` because the session names no vault",
    )
    assert list(tmp_path.iterdir()) == []


def test_c5_a_vault_that_does_not_exist_opens_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnknownVaultError, match="there is no vault `acme`"):
        VaultAccess(tmp_path).open("s1", ["acme"], [URL], OWNER)
    stored = StoredVault(tmp_path)
    with pytest.raises(UnknownVaultError, match="there is no vault `other`"):
        stored.open("acme", "other")


def test_a_session_names_at_most_ten_vaults(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    assert stored.received(stored.open(*["acme"] * 10)) == CANARY
    with pytest.raises(RefusedError, match="names 11 vaults"):
        stored.open(*["acme"] * 11)


def test_only_listed_principals_make_sessions_with_a_vault(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    with pytest.raises(NotPermittedError, match="does not let `user:guest`"):
        stored.access.open("s1", ["acme"], [URL], "user:guest")
    stored.vaults.authorize("acme", "user:guest", by=OWNER)
    capability = stored.access.open("s1", ["acme"], [URL], "user:guest")
    assert stored.received(capability) == CANARY
    stored.vaults.withdraw("acme", "user:guest", by=OWNER)
    assert stored.received(capability) == "miss: not_permitted"
    assert stored.received(stored.open()) == CANARY


def test_only_its_creator_changes_a_vault(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    stored.vaults.authorize("acme", "user:guest", by=OWNER)
    with pytest.raises(NotPermittedError):
        stored.vaults.add("acme", URL, Secret("other"), principal="user:guest")
    with pytest.raises(NotPermittedError):
        stored.vaults.remove("acme", URL, principal="user:guest")
    with pytest.raises(NotPermittedError):
        stored.vaults.authorize("acme", "user:third", by="user:guest")
    assert stored.received(stored.open()) == CANARY


def test_a_closed_capability_is_good_for_nothing(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    capability, other = stored.open(), stored.open()
    stored.access.close(capability)
    stored.access.close(capability)
    for bad in (capability, "", "made up"):
        with pytest.raises(UnknownCapabilityError):
            ask(stored, bad, URL)
    assert stored.received(other) == CANARY


def test_what_another_process_replaces_or_removes_counts_from_the_next_fetch_on(
    tmp_path: Path,
) -> None:
    stored = StoredVault(tmp_path)
    capability = stored.open()
    assert stored.received(capability) == CANARY
    script = (
        "import sys, pathlib; from subako_ray.vault import Vaults; "
        "from subako_ray.schema.secret import Secret; "
        "Vaults(pathlib.Path(sys.argv[1])).add("
        "'acme', 'https://h/mcp', Secret('rotated'), principal='user:owner')"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=60)
    assert stored.received(capability) == "rotated"
    stored.vaults.remove("acme", URL, principal=OWNER)
    assert stored.received(capability) == "miss: no_credential"


def test_any_thread_may_ask(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    capability = stored.open()
    received: list[str] = []

    def work() -> None:
        received.append(stored.received(capability))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert received == [CANARY] * 8


def test_what_crosses_is_plain_data_without_the_secret(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    recipient = Recipient("s1", URL)
    answer = stored.access.fetch(stored.open(), URL, recipient.public_key)
    assert isinstance(answer, SealedCredential)
    pickled = pickle.dumps(answer)
    assert CANARY.encode() not in pickled
    assert CANARY not in repr(answer)
    copied = pickle.loads(pickled)
    assert copied == answer
    assert answer.credential_id.startswith("crd_")
    assert recipient.unseal(copied).reveal() == CANARY


def test_an_answer_opens_only_for_the_session_target_and_key_it_was_sealed_to(
    tmp_path: Path,
) -> None:
    stored = StoredVault(tmp_path)
    capability = stored.open()

    def sealed_to(recipient: Recipient) -> SealedCredential:
        answer = stored.access.fetch(capability, URL, recipient.public_key)
        assert isinstance(answer, SealedCredential)
        return answer

    for recipient in (Recipient("s2", URL), Recipient("s1", "https://h/other")):
        with pytest.raises(SealingError):
            recipient.unseal(sealed_to(recipient))
    with pytest.raises(SealingError):
        Recipient("s1", URL).unseal(sealed_to(Recipient("s1", URL)))


def test_a_recipient_opens_one_answer(tmp_path: Path) -> None:
    stored = StoredVault(tmp_path)
    recipient = Recipient("s1", URL)
    answer = stored.access.fetch(stored.open(), URL, recipient.public_key)
    assert isinstance(answer, SealedCredential)
    recipient.unseal(answer)
    with pytest.raises(SealingError, match="used before"):
        recipient.unseal(answer)


def test_a_recipient_cannot_be_pickled() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Recipient("s1", URL))


@pytest.mark.parametrize("key", [b"", b"short", bytes(32), b"x" * 33])
def test_a_bad_recipient_key_gets_nothing(tmp_path: Path, key: bytes) -> None:
    stored = StoredVault(tmp_path)
    with pytest.raises(SealingError, match="not an X25519 public key"):
        stored.access.fetch(stored.open(), URL, key)
