"""A real Ray cluster with real actors and a real vault, one for all tests that need it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from isolation import isolation
from mcp_servers import OrdersServer, orders_server

from subako_ray.executor.cluster import Cluster
from subako_ray.schema.secret import Secret
from subako_ray.vault.principal import current_principal
from subako_ray.vault.vaults import Vaults


@dataclass(frozen=True, slots=True)
class Site:
    """A deployment: its cluster, its state folder, the orders server and whose vault it is."""

    cluster: Cluster
    state: Path
    orders: OrdersServer
    principal: str


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Starts Ray, the orders server and a vault `acme` with its token."""
    state = tmp_path_factory.mktemp("state")
    principal = current_principal()
    with orders_server(tmp_path_factory.mktemp("orders")) as orders:
        Vaults(state).add("acme", orders.url, Secret(orders.token), principal=principal)
        cluster = asyncio.run(Cluster.connect(state, isolation()))
        try:
            yield Site(cluster, state, orders, principal)
        finally:
            asyncio.run(cluster.close())
