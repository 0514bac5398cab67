"""The version of Tenure, in the one place that the build and the command read."""

__version__ = "0.1.0"


def install_extra(extra: str) -> str:
    """Return the command that adds an extra, from the release's wheel: the name on a package index is anybody's."""
    return f"pip install './tenure-{__version__}-py3-none-any.whl[{extra}]', with the wheel of the release"
