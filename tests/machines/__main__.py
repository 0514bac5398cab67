"""``python -m tests.machines container|init|systemd``: proofs that need a whole machine."""

from __future__ import annotations

import sys

from tests.machines import container, scaffolding, service
from tests.machines.proof import main

PROOFS = {"container": container.prove, "init": scaffolding.prove, "systemd": service.prove}

if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) == 2 else ""
    if name not in PROOFS:
        sys.exit(f"usage: python -m tests.machines {'|'.join(PROOFS)}")
    sys.exit(main(f"e2e-{name}", PROOFS[name]))
