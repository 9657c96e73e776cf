"""A vault actor that is gone is an error that sources know, not one of Ray's."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from ray.exceptions import ActorDiedError

from subako_ray.executor.cluster.sealed_credentials import SealedProvider
from subako_ray.executor.errors import ExecutorError


class Dead:
    """An actor's handle and method when the actor is dead."""

    fetch: Any

    def __init__(self) -> None:
        self.fetch = self

    async def remote(self, *_: object) -> NoReturn:
        """What Ray does."""
        raise ActorDiedError


async def test_a_vault_that_is_gone_is_an_error_of_the_executor() -> None:
    provider = SealedProvider(Dead(), "session_1", "capability")
    with pytest.raises(ExecutorError, match="the vault cannot be asked") as lost:
        await provider.fetch("http://127.0.0.1:9/mcp")
    assert lost.value.code == "internal"
