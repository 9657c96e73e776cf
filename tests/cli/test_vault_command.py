"""`subako vault`: secrets come in by prompt, stdin or file, and never out."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from subako_ray.cli.main import main
from subako_ray.vault import Recipient, SealedCredential, VaultAccess, current_principal

CANARY = "canary-3b9d-never-seen"
URL = "https://mcp.example.com/orders"
COMMAND = [sys.executable, "-c", "from subako_ray.cli.main import main; raise SystemExit(main())"]


class Shell:
    """Runs `subako vault` on one state folder and keeps what it printed."""

    def __init__(
        self, state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.state = state
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def run(self, *arguments: str, stdin: bytes = b"") -> int:
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["vault", *arguments])
        self.out, self.err = self._capsys.readouterr()
        return code

    def add(self, stdin: bytes, *more: str) -> int:
        return self.run("add", "acme", URL, "--stdin", "--state", str(self.state), *more,
                        stdin=stdin)  # fmt: skip

    def token(self) -> str:
        access = VaultAccess(self.state)
        recipient = Recipient("s1", URL)
        capability = access.open("s1", ["acme"], [URL], current_principal())
        answer = access.fetch(capability, URL, recipient.public_key)
        assert isinstance(answer, SealedCredential)
        return recipient.unseal(answer).reveal()


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    return Shell(tmp_path / "state", monkeypatch, capsys)


@pytest.mark.parametrize(
    ("given", "token"),
    [
        (b"canary\n", "canary"),
        (b"canary", "canary"),
        ("caf\u00e9\n".encode(), "caf\u00e9"),
        (b"a b", "a b"),
    ],
)
def test_stdin_and_file_lose_one_newline_and_nothing_else(
    shell: Shell, tmp_path: Path, given: bytes, token: str
) -> None:
    assert shell.add(given) == 0
    assert shell.token() == token
    file = tmp_path / "secret"
    file.write_bytes(given)
    assert shell.run("add", "acme", URL, "--from-file", str(file), "--state", str(shell.state)) == 0
    assert shell.token() == token


def test_the_first_add_says_where_the_key_lies_and_what_losing_it_means(shell: Shell) -> None:
    assert shell.add(b"canary") == 0
    key = shell.state / "vault" / "key"
    assert key.is_file()
    assert f"made the vault key `{key}`" in shell.err
    assert "without it they are lost" in shell.err
    assert shell.out == ""
    assert shell.add(b"canary") == 0
    assert str(key) not in shell.err


def test_adding_again_says_that_it_replaced(shell: Shell) -> None:
    shell.add(b"first")
    assert shell.add(b"second") == 0
    assert f"replaced the credential for {URL} in acme (now version 2)" in shell.err
    assert shell.token() == "second"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (b"", "the secret is empty"),
        (b"\n", "the secret is empty"),
        (b"   \n", "the secret is blank"),
        (CANARY.encode() + b"\n\n", "the secret has a line break in it"),
        (CANARY.encode() + b"\r\n", "the secret has a line break in it"),
        (CANARY.encode() + b"\xff", "the secret has a character outside Latin-1"),
        (CANARY.encode() * 10_000, "the secret has more than 8192 bytes"),
    ],
)
def test_c5_a_bad_secret_is_refused_by_rule_and_nothing_is_stored(
    shell: Shell, given: bytes, message: str
) -> None:
    assert shell.add(given) == 1
    assert message in shell.err
    assert CANARY not in shell.err + shell.out
    assert list(shell.state.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [CANARY],
        ["--json", CANARY],
        [f"--token={CANARY}"],
        ["add", "acme", URL, CANARY],
        ["add", "acme", URL, "--stdin", CANARY],
        ["add", "acme", URL, f"--stdin={CANARY}"],
        ["add", "acme", URL, "--token", CANARY],
        ["add", "acme", URL, f"--token={CANARY}"],
        ["add", "acme", URL, f"--{CANARY}"],
        ["add", "acme", CANARY],
        ["add", "acme", f"https://user:{CANARY}@h/"],
        ["add", f"{CANARY}!", URL],
        ["add", "acme", URL, "--stdin", "--from-file", CANARY],
        ["list", "acme", CANARY],
        ["list", f"{CANARY}!"],
        ["remove", "acme", URL, CANARY],
    ],
)
def test_a_secret_typed_as_an_argument_is_not_repeated(shell: Shell, arguments: list[str]) -> None:
    assert shell.run(*arguments, stdin=b"x") == 2
    assert CANARY not in shell.err + shell.out
    assert shell.err.startswith("error: ")
    assert not (shell.state / "vault").exists()


def test_a_secret_typed_in_place_of_a_file_name_is_not_repeated(shell: Shell) -> None:
    assert shell.run("add", "acme", URL, "--from-file", CANARY) == 1
    assert CANARY not in shell.err + shell.out
    assert "the file of `--from-file` does not exist" in shell.err
    assert shell.run("add", "acme", URL, "--from-file", f"{CANARY}\0") == 1
    assert CANARY not in shell.err + shell.out


def test_missing_arguments_are_named(shell: Shell) -> None:
    assert shell.run("add", "acme") == 2
    assert "the following arguments are required: TARGET" in shell.err


def test_without_a_terminal_the_command_says_how_to_give_the_secret(shell: Shell) -> None:
    assert shell.run("add", "acme", URL, stdin=b"canary") == 2
    assert "`--stdin`" in shell.err


def test_listings_never_carry_a_secret(shell: Shell) -> None:
    shell.add(CANARY.encode(), "--display-name", "Orders")
    assert shell.run("list", "--state", str(shell.state)) == 0
    assert shell.out.splitlines()[0].split() == ["VAULT", "TARGET", "VERSION", "UPDATED", "NAME"]
    assert shell.out.splitlines()[1].split()[:3] == ["acme", URL, "1"]
    table = shell.out
    assert shell.run("list", "acme", "--json", "--state", str(shell.state)) == 0
    assert CANARY not in table + shell.out
    (vault,) = json.loads(shell.out)["vaults"]
    assert vault["name"] == "acme"
    assert vault["principals"] == [current_principal()]
    (credential,) = vault["credentials"]
    assert credential.keys() == {
        "id", "protocol", "target", "auth_scheme", "display_name", "version", "created_at",
        "updated_at",
    }  # fmt: skip
    assert credential["display_name"] == "Orders"


def test_an_empty_listing_is_no_problem_and_an_unknown_vault_is_one(shell: Shell) -> None:
    assert shell.run("list", "--json", "--state", str(shell.state)) == 0
    assert json.loads(shell.out) == {"vaults": []}
    assert shell.run("list", "--state", str(shell.state)) == 0
    assert shell.out == ""
    assert shell.run("list", "acme", "--state", str(shell.state)) == 1
    assert "there is no vault `acme`" in shell.err


def test_a_removed_credential_is_gone(shell: Shell) -> None:
    shell.add(b"canary")
    assert shell.run("remove", "acme", URL, "--state", str(shell.state)) == 0
    assert shell.run("remove", "acme", URL, "--state", str(shell.state)) == 1
    assert f"has no credential for `{URL}`" in shell.err


def test_a_sealed_vault_is_the_hosts_trouble_and_says_how_to_unseal(shell: Shell) -> None:
    shell.add(b"canary")
    (shell.state / "vault" / "key").unlink()
    assert shell.add(b"canary") == 3
    assert "is sealed" in shell.err
    assert "put your copy of the key back" in shell.err


def test_the_prompt_does_not_show_the_secret(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "vault", "add", "acme", URL, "--state", str(tmp_path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        while b"secret (not shown): " not in shown:
            shown += os.read(ours, 1024)
        os.write(ours, CANARY.encode() + b"\n")
        try:
            while more := os.read(ours, 1024):
                shown += more
        except OSError:
            pass  # The other end is closed.
        assert process.wait(timeout=60) == 0
    os.close(ours)
    assert CANARY.encode() not in shown
    assert b"stored the credential" in shown


def test_at_a_terminal_stdin_is_refused_because_it_would_show_the_secret(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    try:
        ended = subprocess.run(
            [*COMMAND, "vault", "add", "acme", URL, "--stdin", "--state", str(tmp_path)],
            stdin=theirs,
            capture_output=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(theirs)
        os.close(ours)
    assert ended.returncode == 2
    assert b"stdin is a terminal" in ended.stderr


def test_listing_imports_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; from subako_ray.cli.main import main; main(sys.argv[1:]); "
        "print(sorted({'pydantic', 'ray', 'mcp', 'jinja2', 'ruamel'} & sys.modules.keys()))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, "vault", "list", "--state", str(tmp_path)],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == b"[]\n"


def test_help_shows_examples(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["vault", "--help"])
    assert ended.value.code == 0
    assert "subako vault add acme" in capsys.readouterr().out
