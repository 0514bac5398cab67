"""The bundled server: Redis without a machine of its own, for one host."""

from supervisor.embedded.valkey import EmbeddedServer, find_server

__all__ = ["EmbeddedServer", "find_server"]
