"""Options of a client's connections: those of a configuration, or plain ones made from texts.

A program that enqueues, and has no configuration, makes plain ones: the models of the settings cost more to import
than everything else that a producer loads beside the Redis client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from supervisor.core.durations import parse_duration

if TYPE_CHECKING:
    from pydantic import SecretStr

    from supervisor.settings.sections.models import RedisSettings

RedisOptions: TypeAlias = "RedisSettings | PlainRedisOptions"
Secret: TypeAlias = "SecretStr | PlainSecret"  # noqa: S105 - a type

_RANGES = {"connect_timeout": (0.05, 30.0), "command_timeout": (0.05, 30.0), "durability_timeout": (0.001, 10.0)}
SECRET_OPTIONS = {"url", "password", "sentinel_password"}
_TEXTS = {"username", "sentinel_username", "tls_ca_file", "tls_cert_file", "tls_key_file"}
_DURABILITY = {"none", "replica"}


@runtime_checkable
class FollowedFile(Protocol):
    """A secret that is read again from its file while the program runs."""

    def current(self) -> str:
        """Return the file's content now."""


@dataclass(frozen=True, slots=True, repr=False)
class PlainSecret:
    """A secret given as a text, which neither ``str`` nor ``repr`` shows."""

    text: str

    def get_secret_value(self) -> str:
        """Return the text."""
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlainRedisOptions:
    """Options given as texts; names, defaults and ranges are those of ``RedisSettings``."""

    url: PlainSecret
    username: str | None = None
    password: PlainSecret | None = None
    sentinel_username: str | None = None
    sentinel_password: PlainSecret | None = None
    connect_timeout_s: float = 2.0
    command_timeout_s: float = 2.0
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    durability: str = "none"
    durability_timeout_s: float = 0.1

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> PlainRedisOptions | None:
        """Return the options that ``given``, which has a ``url``, names by the keys of ``redis:``.

        None: a key is none of these options, or a value is refused. Then ``RedisSettings`` can tell more.
        """
        try:
            return cls(**dict(_option(key, value) for key, value in given.items()))
        except ValueError:
            return None


def _option(key: str, value: str) -> tuple[str, Any]:
    """Return the name of an option and its value.

    Raises:
        ValueError: it is none of the plain options, or out of its range.
    """
    if not isinstance(value, str):
        raise ValueError(f"{key} is no text")  # noqa: TRY004 - a value
    value.encode()  # refuses bytes of a variable that are no UTF-8
    if key in SECRET_OPTIONS:
        return key, PlainSecret(value)
    if key in _TEXTS or (key == "durability" and value in _DURABILITY):
        return key, value
    least, most = _RANGES.get(key, (1.0, 0.0))
    seconds = parse_duration(value)
    if not least <= seconds <= most:
        raise ValueError(f"{key} is no option, or out of its range")
    return f"{key}_s", seconds


class Passwords:
    """The passwords of one client, or of one search: the one that its file holds now, then the last that worked.

    So a password can be replaced while the program runs, whether the file or the server learns of it first.
    """

    def __init__(self, secret: Secret | None) -> None:
        """Take the setting; one that names no file is never read again."""
        self._secret = secret if isinstance(secret, FollowedFile) else None
        self._served: PlainSecret | None = None

    def __repr__(self) -> str:
        """Show nothing."""
        return f"<{type(self).__name__}>"

    def candidates(self, fixed: str | None) -> list[str | None]:
        """Return the passwords to try, in order; ``fixed`` is the one of a connection whose secret is in no file."""
        if self._secret is None:
            return [fixed]
        newest = self._secret.current()
        served = newest if self._served is None else self._served.get_secret_value()
        return [newest] if served == newest else [newest, served]

    def served(self, password: str | None) -> None:
        """Take note that the server took ``password``."""
        if self._secret is not None and password is not None:
            self._served = PlainSecret(password)
