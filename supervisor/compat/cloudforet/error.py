"""The errors that Cloudforet's services import from its core, under the names that they know."""

from __future__ import annotations

from typing import Any, ClassVar


class ERROR_BASE(Exception):  # noqa: N801, N818 - the name that services import
    """An error with a stable code, a status as gRPC names it, and a message that names its subject."""

    _message: ClassVar[str] = "{reason}"
    _status_code: ClassVar[str] = "INTERNAL"

    def __init__(self, _error_code: str | None = None, _meta: dict[str, Any] | None = None, **values: Any) -> None:
        self.error_code = (_error_code or type(self).__name__).strip()
        self.meta: dict[str, Any] = dict(values if _meta is None else _meta)
        try:
            self.message = self._message.format(**values)
        except (KeyError, IndexError):
            self.message = self._message
        super().__init__(f"{self.error_code}: {self.message}")

    @property
    def status_code(self) -> str:
        """The status, as gRPC names it."""
        return self._status_code


def _error(name: str, base: type[ERROR_BASE], message: str, status: str | None = None) -> type[ERROR_BASE]:
    """Return an error class: a subclass of ``base`` with ``message``, and its status unless given another."""
    body: dict[str, Any] = {"_message": message, "__module__": __name__, "__doc__": message}
    return type(name, (base,), body if status is None else {**body, "_status_code": status})


class ERROR_UNKNOWN(ERROR_BASE):  # noqa: N801
    """Anything else."""

    _message = "{message}"


ERROR_CONFIGURATION = _error("ERROR_CONFIGURATION", ERROR_UNKNOWN, "Configuration is invalid. (key = {key})")

_ARGUMENT = ERROR_INVALID_ARGUMENT = _error(
    "ERROR_INVALID_ARGUMENT", ERROR_BASE, "Argument is invalid.", "INVALID_ARGUMENT"
)
ERROR_REQUIRED_PARAMETER = _error("ERROR_REQUIRED_PARAMETER", _ARGUMENT, "Required parameter. (key = {key})")
ERROR_INVALID_PARAMETER = _error(
    "ERROR_INVALID_PARAMETER", _ARGUMENT, "Parameter is invalid. (key = {key}, reason = {reason})"
)
ERROR_INVALID_PARAMETER_TYPE = _error(
    "ERROR_INVALID_PARAMETER_TYPE", _ARGUMENT, "Parameter has the wrong type. (key = {key}, type = {type})"
)
ERROR_NOT_FOUND = _error("ERROR_NOT_FOUND", _ARGUMENT, "Object not found. ({key} = {value})", "NOT_FOUND")
ERROR_NOT_UNIQUE = _error(
    "ERROR_NOT_UNIQUE", _ARGUMENT, "Value must be unique, and is there already. ({key} = {value})", "ALREADY_EXISTS"
)
ERROR_SAVE_UNIQUE_VALUES = _error("ERROR_SAVE_UNIQUE_VALUES", ERROR_NOT_UNIQUE, "Not unique. (keys = {keys})")
ERROR_REQUIRED_X_DOMAIN_ID = _error("ERROR_REQUIRED_X_DOMAIN_ID", _ARGUMENT, "The metadata needs an x_domain_id.")
ERROR_EXIST_RESOURCE = _error("ERROR_EXIST_RESOURCE", _ARGUMENT, "{parent} still has {child}.")
ERROR_OPERATOR_VALUE_TYPE = _error("ERROR_OPERATOR_VALUE_TYPE", _ARGUMENT, "{operator} takes no list. ({condition})")
ERROR_OPERATOR_LIST_VALUE_TYPE = _error(
    "ERROR_OPERATOR_LIST_VALUE_TYPE", _ARGUMENT, "{operator} takes a list. ({condition})"
)
ERROR_OPERATOR_DICT_VALUE_TYPE = _error(
    "ERROR_OPERATOR_DICT_VALUE_TYPE", _ARGUMENT, "{operator} takes a mapping. ({condition})"
)
ERROR_OPERATOR_BOOLEAN_TYPE = _error("ERROR_OPERATOR_BOOLEAN_TYPE", _ARGUMENT, "{operator} takes a bool. ({condition})")
ERROR_INVALID_FORMAT = _error("ERROR_INVALID_FORMAT", _ARGUMENT, "Format is invalid. ({key} = {value}, rule = {rule})")
ERROR_JSON_FORMAT = _error("ERROR_JSON_FORMAT", _ARGUMENT, "JSON is invalid. ({key} = {value})")
ERROR_AUTHENTICATE_FAILURE = _error(
    "ERROR_AUTHENTICATE_FAILURE", _ARGUMENT, "Authentication failed. (message = {message})", "UNAUTHENTICATED"
)
ERROR_PERMISSION_DENIED = _error("ERROR_PERMISSION_DENIED", _ARGUMENT, "Permission denied.", "PERMISSION_DENIED")

ERROR_INTERNAL_API = _error("ERROR_INTERNAL_API", ERROR_UNKNOWN, "{message}")
ERROR_REQUEST_TIMEOUT = _error("ERROR_REQUEST_TIMEOUT", ERROR_UNKNOWN, "Request timeout.", "DEADLINE_EXCEEDED")
ERROR_UNSUPPORTED_API = _error("ERROR_UNSUPPORTED_API", ERROR_UNKNOWN, "Call is not supported. (reason = {reason})")
ERROR_NOT_IMPLEMENTED = _error("ERROR_NOT_IMPLEMENTED", ERROR_UNKNOWN, "Not implemented.", "UNIMPLEMENTED")
ERROR_DB_QUERY = _error("ERROR_DB_QUERY", ERROR_UNKNOWN, "Query failed. (reason = {reason})")
ERROR_UNAVAILAVBLE = _error("ERROR_UNAVAILAVBLE", ERROR_UNKNOWN, "Unavailable. (reason = {reason})", "UNAVAILABLE")
ERROR_CONNECTOR = _error(
    "ERROR_CONNECTOR", ERROR_UNKNOWN, "Connector failed. (connector = {connector}, reason = {reason})"
)
ERROR_CONNECTOR_LOAD = _error(
    "ERROR_CONNECTOR_LOAD", ERROR_CONNECTOR, "Connector {connector} cannot be used. (reason = {reason})"
)
ERROR_LOCATOR = _error("ERROR_LOCATOR", ERROR_UNKNOWN, "{name} cannot be loaded. (reason = {reason})")

ERROR_CACHE_CONFIGURATION = _error(
    "ERROR_CACHE_CONFIGURATION", ERROR_CONFIGURATION, "CACHES.{alias} is missing or cannot be used."
)
ERROR_CACHE_OPTION = _error("ERROR_CACHE_OPTION", ERROR_UNKNOWN, "{method} of this cache has no {option}.")
ERROR_CACHE_KEY_FORMAT = _error("ERROR_CACHE_KEY_FORMAT", ERROR_UNKNOWN, "Key of the cache is invalid. (key = {key})")
ERROR_CACHE_DECODE = _error("ERROR_CACHE_DECODE", ERROR_UNKNOWN, "What the cache holds is no JSON. (reason = {reason})")
ERROR_CACHE_ENCODE = _error("ERROR_CACHE_ENCODE", ERROR_UNKNOWN, "Value cannot be kept as JSON. (reason = {reason})")
