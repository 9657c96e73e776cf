"""A provider of one token, and calls made with it."""

from __future__ import annotations

import json

from subako_ray.executor.credentials import Credential, CredentialAnswer, NoCredential
from subako_ray.executor.source import Approved, SourceCall
from subako_ray.schema.secret import Secret

CANARY = "canary-4be1f0b2a7"


class OneCredential:
    """A provider with one token, or none; it takes down what it was asked for."""

    def __init__(self, token: str | None) -> None:
        self.token = token
        self.targets: list[str] = []

    async def fetch(self, target: str) -> CredentialAnswer:
        """Answers for every target."""
        self.targets.append(target)
        if self.token is None:
            return NoCredential(reason="no vault of the session has one")
        return Credential(credential_id="cred_1", token=Secret(self.token))


def a_call(tool: str, approved: Approved | None = None, **arguments: object) -> SourceCall:
    """A call of a tool."""
    return SourceCall(
        call_id="call_1",
        tool=tool,
        arguments=arguments,
        argument_bytes=json.dumps(arguments).encode(),
        approved=approved,
    )
