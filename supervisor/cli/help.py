"""Option parsing and help output of every command.

Guarantees
    ``--lease_duration`` is ``--lease-duration``, in every option of every command; help shows hyphens.
    Options are in named sections, and no line is wider than the terminal where its words allow it:
    examples are continued with a backslash, so that they can still be copied.
    A command that takes ``--set`` also takes each setting as a flag of its own, ``--election-lease-duration 5s``.
    ``--help`` folds the options that all such commands share into one line; ``--help-all`` has them in full.

Does not guarantee
    That a flag's value can be used: the loader judges it, with the flag's name in the problem.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.core import augment_usage_errors

from supervisor.cli.config.setting_flags import SETTING_FLAGS, take_setting_flags

OWN = "Options"
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Configuration": ("config_files", "sets", "compat", "module_paths", "write_config_to"),
    "Serving": ("host", "port"),
    "Storage": ("data_dir", "redis_url"),
    "Logging": ("log_format",),
    "Features": ("feature_gates", "plugins"),
    "Output": ("output", "_columns", "_where", "with_sources"),
    "Help": ("_click_default_help", "help", "help_all", "version"),
}
"""Parameters by their section of the help; the others are the command's own."""

FOLDED = "Configuration"
UNFOLDED_COMMAND = "run"

_SECTION_OF = {name: title for title, names in SECTIONS.items() for name in names}
_UNWRAPPED = "\b\n"
_EXAMPLE = re.compile(
    r"(?P<indent> +)(?P<code>(?:[A-Z_]+=\S+ +)*(?:tenure|python|curl|kill) .*?)(?: {2,}(?P<note>\S.*))?\Z"
)
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
_CONTINUED = "    "


def hyphenated(name: str) -> str:
    """Return the one spelling of an option's name: hyphens in place of underscores."""
    return name.replace("_", "-")


CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
    "token_normalize_func": hyphenated,
}
"""For the outermost group; its commands inherit it."""


class _Sectioned(click.Command):
    """Help of a command or a group: examples as wide as there is room, options section by section."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description, and its examples as wide as there is room."""
        shown = click.Command(self.name, help=fitted(self.help or "", formatter.width - 2))
        shown.format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (OWN, *SECTIONS)}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                sections[_SECTION_OF.get(param.name or "", OWN)].append(record)
        if _is_folded(self) and ctx.meta.get(FOLDED, True):
            names = [param.opts[-1] for param in self.params if _SECTION_OF.get(param.name or "") == FOLDED]
            sections[FOLDED] = [(" ".join(names), "see --help-all")]
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class SectionedCommand(_Sectioned):
    """A command with its options in sections."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the flags that are settings out of the line, then read the rest."""
        if any(param.name == "sets" for param in self.params):
            known = {
                hyphenated(name): not (param.is_flag or param.count)
                for param in self.get_params(ctx)
                if isinstance(param, click.Option)
                for name in (*param.opts, *param.secondary_opts)
            }
            with augment_usage_errors(ctx):
                args, ctx.meta[SETTING_FLAGS] = take_setting_flags(args, known, hyphenated)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all`` where ``--help`` is folded."""
        params = super().get_params(ctx)
        return [*params, _HELP_ALL] if _is_folded(self) else params


class SectionedGroup(_Sectioned, click.Group):
    """A group whose commands are such commands."""

    command_class = SectionedCommand
    group_class = type

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, then the options."""
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)


def _is_folded(command: click.Command) -> bool:
    return command.name != UNFOLDED_COMMAND and any(param.name == "sets" for param in command.params)


def _show_all(ctx: click.Context, _: click.Parameter, is_given: Any) -> None:
    if is_given and not ctx.resilient_parsing:
        ctx.meta[FOLDED] = False
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show this message with all options and exit.",
)


def fitted(text: str, width: int) -> str:
    """Return ``text`` with the lines that click leaves as they are broken where they would be too wide."""
    blocks = re.split(r"\n[ \t]*\n", _dedented(text))
    return "\n\n".join(
        _UNWRAPPED
        + "\n".join(piece for line in block[len(_UNWRAPPED) :].splitlines() for piece in _pieces(line, width))
        if block.startswith(_UNWRAPPED)
        else block
        for block in blocks
    )


def _dedented(text: str) -> str:
    first, _, rest = text.partition("\n")
    return f"{first.strip()}\n{textwrap.dedent(rest)}".strip() if rest else first.strip()


def _pieces(line: str, width: int) -> Iterator[str]:
    if len(line) <= width:
        yield line
        return
    example = _EXAMPLE.match(line)
    if example is None:
        indent = line[: len(line) - len(line.lstrip())]
        yield from textwrap.wrap(
            line.strip(), width, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
        )
        return
    yield from _continued(example["code"], example["indent"], width)
    if example["note"]:
        indent = f"{example['indent']}{_CONTINUED}"
        yield from textwrap.wrap(example["note"], width, initial_indent=indent, subsequent_indent=indent)


def _continued(code: str, indent: str, width: int) -> Iterator[str]:
    line = ""
    for word in _WORD.findall(code):
        if line and len(indent) + len(line) + 1 + len(word) > width - 2:
            yield f"{indent}{line} \\"
            indent, line = f"{indent.rstrip(' ') or '  '}{_CONTINUED}", word
        else:
            line = f"{line} {word}".lstrip()
    yield f"{indent}{line}"
