"""The parts of one running gateway process."""

from __future__ import annotations

from harbor_env.config import GatewayConfig
from harbor_env.gateway.engine_pool import EnginePool
from harbor_env.gateway.metrics import Metrics
from harbor_env.gateway.pace import Pace
from harbor_env.gateway.sessions import Sessions
from harbor_env.gateway.store import Store


class Gateway:
    """Settings, metrics and pace from the start; store, engines and sessions from `start` on."""

    store: Store
    engines: EnginePool
    sessions: Sessions

    def __init__(self, config: GatewayConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self.pace = Pace()

    def start(self, store: Store, engines: EnginePool) -> None:
        self.store = store
        self.engines = engines
        self.sessions = Sessions(store, engines)
