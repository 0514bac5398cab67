"""``python -m supervisor`` is ``tenure``."""

from supervisor.cli.main import main

if __name__ == "__main__":
    main()
