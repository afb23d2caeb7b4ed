"""Parts of command lines: types of options, which refuse with a sentence, and longer help."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def at_least(least: int) -> Callable[[str], int]:
    """The type of a whole number of at least `least`."""

    def parse(word: str) -> int:
        try:
            number = int(word.replace("_", ""))
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least {least:,}")
        return number

    return parse


positive = at_least(1)
"""A whole number of at least 1."""


def add_epilog(parser: argparse.ArgumentParser, text: str) -> None:
    """Text that --help prints as it is, after the options."""
    parser.epilog = text.strip("\n")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
