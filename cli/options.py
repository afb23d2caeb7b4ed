"""Types of command-line options: what they refuse, they refuse with a sentence."""

from __future__ import annotations

import argparse


def positive(word: str) -> int:
    """A whole number of at least 1."""
    try:
        number = int(word.replace("_", ""))
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")
    return number
