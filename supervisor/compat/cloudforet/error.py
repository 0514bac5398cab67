"""The errors that Cloudforet's services import from its core, under the names that they know."""

from __future__ import annotations

from typing import Any, ClassVar


class ERROR_BASE(Exception):  # noqa: N801, N818 - the name that services import
    """An error with a stable code, and a message that names what it is about."""

    _message: ClassVar[str] = "{reason}"

    def __init__(self, **values: Any) -> None:
        self.error_code = type(self).__name__
        self.meta: dict[str, Any] = dict(values)
        try:
            self.message = self._message.format(**values)
        except (KeyError, IndexError):
            self.message = self._message
        super().__init__(f"{self.error_code}: {self.message}")


class ERROR_UNKNOWN(ERROR_BASE):  # noqa: N801
    """Anything else."""

    _message = "{message}"


class ERROR_CONFIGURATION(ERROR_BASE):  # noqa: N801
    """A key of the configuration is missing or wrong."""

    _message = "Configuration is invalid. (key = {key})"


class ERROR_INVALID_ARGUMENT(ERROR_BASE):  # noqa: N801
    """What was given cannot be used."""

    _message = "Argument is invalid."


class ERROR_REQUIRED_PARAMETER(ERROR_INVALID_ARGUMENT):  # noqa: N801
    """A parameter is missing."""

    _message = "Required parameter. (key = {key})"


class ERROR_INVALID_PARAMETER(ERROR_INVALID_ARGUMENT):  # noqa: N801
    """A parameter cannot be used."""

    _message = "Parameter is invalid. (key = {key}, reason = {reason})"


class ERROR_NOT_FOUND(ERROR_INVALID_ARGUMENT):  # noqa: N801
    """What was asked for is not there."""

    _message = "Object not found. ({key} = {value})"
