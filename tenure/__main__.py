"""``python -m tenure``: the command."""

from supervisor.__main__ import main

if __name__ == "__main__":
    main()
