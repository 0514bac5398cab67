"""The settings of commands that people give a cluster through Redis."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, SecretStr

from supervisor.core.signing import KEY_CHARS_MIN, Signer
from supervisor.settings.base import Section, Violation


class CommandSettings(Section):
    """Agent commands: `tenure stop`, `reload`, `worker …`, `leader resign`. See docs/redis-acl.md."""

    key: SecretStr | None = Field(default=None)
    """Key of operators, 32 characters at least: commands are signed with it, and agents refuse others. Use
    ${file:/run/secrets/commands}. Must be equal on all replicas. Unset: whoever may write to Redis may command."""

    def signer(self, cluster: str) -> Signer | None:
        """Return the signer and verifier of ``cluster``; None without a key."""
        return None if self.key is None else Signer(cluster, self.key.get_secret_value())


def faults_of_commands(commands: CommandSettings) -> Iterator[Violation]:
    """Yield the faults that make a key easy to guess."""
    if commands.key is not None and len(commands.key.get_secret_value()) < KEY_CHARS_MIN:
        message = f"has fewer than {KEY_CHARS_MIN} characters"
        yield Violation((("commands", "key"),), message, "make one by `openssl rand -hex 32`")
