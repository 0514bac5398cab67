"""A network that can be broken: a TCP proxy on loopback in front of a server.

It passes, delays, throttles, swallows, resets or refuses, for connections that exist and for new
ones, and can be mended at any moment. What was swallowed stays lost, as on a real network whose
connection died; what was delayed arrives late.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.kit.scripted_server import LOOPBACK, Addressed

_PIECE = 1 << 16


class Proxy(Addressed):
    """One listening port; ``target`` is a unix socket or (host, port)."""

    def __init__(self, target: Path | tuple[str, int]) -> None:
        self._target = target
        self._links: list[tuple[socket.socket, socket.socket]] = []
        self._delay_s = 0.0
        self._drops_replies = False
        self._is_hole = False
        self._bytes_per_tick = 0
        self._tick_s = 0.0
        self._moments_left = 0
        self._stopping = threading.Event()
        self.requests: list[bytes] = []
        self.port = 0
        self._listener = self._listen()

    def mend(self) -> None:
        """Pass everything, at once."""
        self._delay_s, self._is_hole, self._drops_replies, self._bytes_per_tick = 0.0, False, False, 0
        if self._listener.fileno() < 0:
            self._listener = self._listen()

    def black_hole(self) -> None:
        """Swallow everything both ways; connecting still works, as with a host behind a dead firewall."""
        self._is_hole = True

    def drop_replies(self) -> None:
        """Let requests through and lose their answers."""
        self._drops_replies = True

    def delay(self, seconds: float) -> None:
        """Let each piece of a reply arrive so much later."""
        self._delay_s = seconds

    def throttle(self, *, size: int, every_s: float) -> None:
        """Let replies through in pieces of ``size`` bytes."""
        self._bytes_per_tick, self._tick_s = size, every_s

    def refuse(self) -> None:
        """Refuse new connections, and reset those that exist."""
        # shutdown wakes the accept that holds the port; close alone would leave it listening
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()

    def reset(self) -> None:
        """Reset every connection."""
        links, self._links = self._links, []  # what is no link any more is left alone by its pump, which would send FIN
        for near, far in links:
            for end in (near, far):
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RD)  # wakes its pump
                end.close()  # also one whose peer has gone already

    def reset_at(self, moment: int) -> None:
        """Reset every connection once, at the ``moment``-th moment from now, 1 being the next.

        Moments are: a connection is accepted; a piece of either way has come; it was passed on.
        """
        self._moments_left = moment

    @property
    def was_reset(self) -> bool:
        """Whether the moment of ``reset_at`` came."""
        return not self._moments_left

    def _passes(self) -> None:
        """Count a moment."""
        if self._moments_left:
            self._moments_left -= 1
            if not self._moments_left:
                self.reset()

    def half_open(self) -> None:
        """Let the server lose its ends while the clients keep theirs: a host that was switched off and on again."""
        self._is_hole = True
        for _, far in self._links:
            with suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End everything."""
        self._stopping.set()
        self.refuse()

    def _listen(self) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((LOOPBACK, self.port))
        listener.listen()
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()
        return listener

    def _serve(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX if isinstance(self._target, Path) else socket.AF_INET)
            try:
                far.connect(str(self._target) if isinstance(self._target, Path) else self._target)
            except OSError:
                near.close()
                far.close()
                continue
            self._links.append((near, far))
            if self._stopping.is_set():  # it came while everything was being closed
                self.reset()
                return
            self._passes()
            threading.Thread(target=self._pump, args=(near, far, self._request), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, self._reply), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, carry: Callable[[bytes, socket.socket], None]) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                self._passes()
                carry(piece, sink)
                self._passes()
        if self._is_hole or not {(source, sink), (sink, source)} & {*self._links}:
            return  # nobody hears of the end either, or it was a reset
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _request(self, piece: bytes, sink: socket.socket) -> None:
        if not self._is_hole:
            self.requests.append(piece)
            sink.sendall(piece)

    def _reply(self, piece: bytes, sink: socket.socket) -> None:
        if self._delay_s:
            self._stopping.wait(self._delay_s)
        while piece and not self._is_hole and not self._drops_replies:
            size = self._bytes_per_tick or len(piece)
            sink.sendall(piece[:size])
            piece = piece[size:]
            if piece:
                self._stopping.wait(self._tick_s)
