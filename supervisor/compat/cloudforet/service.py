"""The base classes of services, managers and connectors, for those that move over by changing imports.

``SpaceConnector`` knows the contents of a call to another service; its transport is the affair of a class derived
from it, which ``CONNECTORS.SpaceConnector.backend`` names. There is no gRPC client here.

Duties of Cloudforet's decorators in its API server (authentication, authorization, events) are done elsewhere
here or not at all: its name can be imported, and changes nothing.
"""

from __future__ import annotations

from typing import Any

from supervisor.compat.cloudforet import config as configuration
from supervisor.compat.cloudforet.error import ERROR_CONNECTOR, ERROR_CONNECTOR_LOAD, ERROR_UNSUPPORTED_API
from supervisor.compat.cloudforet.locator import Locator
from supervisor.compat.cloudforet.transaction import Transaction, current


class Located:
    """Base of services, managers and connectors: a transaction and a locator."""

    def __init__(self, transaction: Transaction | None = None, **_: Any) -> None:
        self.transaction = transaction or current()
        self.locator = Locator(self.transaction)


class BaseManager(Located):
    """Base of managers: ``self.locator`` and ``self.transaction``."""

    def __init__(self, transaction: Transaction | None = None, **values: Any) -> None:
        super().__init__(transaction)
        for name, value in values.items():
            setattr(self, name, value)


class BaseService(Located):
    """Base of services: made with the metadata of a stage."""

    def __init__(self, metadata: dict[str, Any] | None = None, transaction: Transaction | None = None) -> None:
        super().__init__(transaction)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.transaction.meta.update(self.metadata)


class BaseConnector(Located):
    """Base of connectors: ``self.config`` is the entry of ``CONNECTORS`` under its name."""

    name: str | None = None
    """The key in ``CONNECTORS``; None: the name of the class."""

    def __init__(self, transaction: Transaction | None = None, config: dict[str, Any] | None = None, **_: Any) -> None:
        super().__init__(transaction)
        found = config or configuration.get_connector(self.name or type(self).__name__)
        self.config: dict[str, Any] = found


class SpaceConnector(BaseConnector):
    """Calls another service by ``dispatch("Domain.list", params)``; a subclass has ``call``."""

    name = "SpaceConnector"

    def __init__(
        self,
        transaction: Transaction | None = None,
        *,
        service: str | None = None,
        endpoint: str | None = None,
        token: str | None = None,
        config: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(transaction, config)
        self.service = service
        self.options = options
        self.endpoint = endpoint or (self.config.get("endpoints") or {}).get(service or "")
        self._token = token
        if not self.endpoint:
            reason = f"CONNECTORS.SpaceConnector.endpoints has no {service}" if service else "needs service or endpoint"
            raise ERROR_CONNECTOR_LOAD(connector=self.name, reason=reason)

    def dispatch(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        token: str | None = None,
        x_domain_id: str | None = None,
        x_workspace_id: str | None = None,
    ) -> Any:
        """Call ``Resource.verb`` of the other service; the token is that of the stage unless another is given.

        Raises:
            ERROR_CONNECTOR: ``method`` is no ``Resource.verb``.
        """
        resource, _, verb = method.partition(".")
        if not resource or not verb or "." in verb:
            raise ERROR_CONNECTOR(connector=self.name, reason=f"{method!r} is no Resource.verb")
        given = {
            "token": token or self._token or self.transaction.get_meta("token"),
            "x_domain_id": x_domain_id,
            "x_workspace_id": x_workspace_id,
        }
        return self.call(resource, verb, params or {}, {key: value for key, value in given.items() if value})

    def call(self, resource: str, verb: str, params: dict[str, Any], metadata: dict[str, str]) -> Any:  # noqa: ARG002
        """Send one call, such as ``list`` of ``Domain``, with token and ids as ``metadata``; a subclass does it."""
        raise ERROR_UNSUPPORTED_API(
            reason=f"{resource}.{verb}: calls to other services need a class derived from SpaceConnector that has "
            f"call(); name it in CONNECTORS.SpaceConnector.backend (docs/cloudforet-services.md)"
        )


def _handler(decorated: Any = None, **_: Any) -> Any:
    """Decorate a service or a method of it: nothing is changed. Stages that call methods are transactions already."""
    return (lambda other: other) if decorated is None else decorated


authentication_handler = authorization_handler = mutation_handler = event_handler = transaction = _handler
