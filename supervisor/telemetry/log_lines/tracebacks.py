"""Text of tracebacks without secrets: the innermost frames and the message, whatever the length of either."""

from __future__ import annotations

from traceback import TracebackException

from supervisor.telemetry.masking import mask_text


def end_of_traceback(rendered: TracebackException, *, chars: int, piece_chars: int) -> str:
    """Return the last frames and the message, masked.

    Args:
        rendered: the exception with those that led to it.
        chars: how much is wanted; the result may be longer by one piece.
        piece_chars: how much of one frame or message is shown, so that a long message leaves room for the frames.
    """
    pieces: list[str] = []
    wanted = chars
    for piece in reversed(list(rendered.format())):
        if wanted <= 0:
            pieces.append("…\n")
            break
        pieces.append(mask_text(piece.removesuffix("\n"), piece_chars) + "\n")
        wanted -= len(pieces[-1])
    return "".join(reversed(pieces))
