"""What programs see of an error: a stable code, a status of HTTP, whether to call again, an exit code."""

from __future__ import annotations

from supervisor.core import errors
from supervisor.core.errors import TenureError
from tests.kit.tables import table


@table(
    ("kind", "code", "status", "is_retryable", "exit_code"),
    [
        (errors.TenureError, "tenure", 500, False, 1),
        (errors.ConfigError, "config", 500, False, 78),
        (errors.OptionError, "option", 400, False, 1),
        (errors.CannotBindError, "cannot_bind", 500, False, 69),
        (errors.CannotCreateError, "cannot_create", 500, False, 73),
        (errors.UnknownJobError, "unknown_job", 404, False, 1),
        (errors.ArgumentsError, "arguments", 400, False, 1),
        (errors.PayloadTooLargeError, "payload_too_large", 413, False, 1),
        (errors.StoreUnavailableError, "store_unavailable", 503, True, 1),
        (errors.NotReplicatedError, "not_replicated", 503, True, 1),
        (errors.StoreRefusedError, "store_refused", 502, False, 78),
        (errors.FencedError, "fenced", 409, False, 1),
    ],
)
def test_each_error_keeps_its_code_status_and_verdict(
    kind: type[TenureError], code: str, status: int, *, is_retryable: bool, exit_code: int
) -> None:
    """Programs compare these: a change is a change of the interface."""
    assert (kind.code, kind.http_status, kind.is_retryable, kind.exit_code) == (code, status, is_retryable, exit_code)


def test_a_new_error_has_a_code_of_its_own() -> None:
    """Made of the name of the class, and not inherited."""

    class OutOfPaperError(errors.StoreUnavailableError):
        """A kind of error that a plugin defines."""

    assert OutOfPaperError.code == "out_of_paper"
    assert OutOfPaperError.is_retryable
