"""The pieces of a text by rules on runs of characters, written by hand for some patterns: an oracle that shares nothing
with the automata.

A text is cut into runs of one kind (letters, digits, white space, others); where pieces begin follows from a
character's place in its run, from the runs beside it, and from what a run of white space holds. All positions at once,
without a loop over characters: the way in which the published system does it on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toksplice.charclass import class_runs

Flags = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

_KANA_AND_HAN = "[一-龥\u3040-ゟ゠-ヿ]"


def members(source: str, points: Places) -> Flags:
    """Which code points the one-character pattern matches."""
    return (np.searchsorted(class_runs(source), points, side="right") & 1).astype(np.bool_)


@dataclass(frozen=True)
class Runs:
    """By position: whether a run begins there, and where its run begins and ends."""

    begins: Flags
    start: Places
    end: Places


def _runs(kinds: Places, cuts: Flags) -> Runs:
    """Runs of one kind. `cuts`: where a run begins in any case."""
    places = np.arange(len(kinds))
    begins = cuts.copy()
    begins[0] = True
    begins[1:] |= kinds[1:] != kinds[:-1]
    ends = np.append(np.flatnonzero(begins)[1:], len(kinds))
    return Runs(begins, np.maximum.accumulate(np.where(begins, places, 0)), ends[np.cumsum(begins) - 1])


def _before(flags: Flags, by: int = 1) -> Flags:
    """The flag of the character so many places before."""
    return np.concatenate([np.zeros(min(by, len(flags)), np.bool_), flags[: max(len(flags) - by, 0)]])


def _after(flags: Flags, by: int = 1) -> Flags:
    return np.concatenate([flags[by:], np.zeros(min(by, len(flags)), np.bool_)])


def _white_space(pieces: Flags, space: Flags, newline: Flags, joins: Flags, ends_text: Flags, runs: Runs) -> None:
    """Sets where pieces begin in runs of white space. `joins`: the newlines that a run begins with belong to the piece
    before it. `ends_text`: nothing follows the character."""
    count = len(space)
    places = np.arange(count)
    other = np.minimum.accumulate(np.where(space & ~newline, places, count)[::-1])[::-1]
    own = np.where(joins[runs.start], np.minimum(other, runs.end)[runs.start], runs.start)
    last_newline = np.maximum.accumulate(np.where(space & newline, places, -1))[runs.end - 1]
    tail = np.where(last_newline >= own, last_newline + 1, own)
    pieces[space] = False
    pieces |= space & ((places == own) | (places == tail)) & (places < runs.end)
    last = runs.end - 1
    pieces |= space & (places == last) & (last > tail) & ~ends_text[last]


def cl100k(text: str, digits: int = 3) -> list[int]:
    """Where the pieces of the cl100k pattern begin, in characters; with one digit a piece, those of Qwen's."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
    count = len(points)
    if not count:
        return []
    letter, digit, space = (members(source, points) for source in (r"\p{L}", r"\p{N}", r"\s"))
    newline, blank = np.isin(points, (10, 13)), points == 32
    other = ~(letter | digit | space)
    runs = _runs(letter + 2 * digit + 3 * space, np.zeros(count, np.bool_))
    pieces = digit & ((np.arange(count) - runs.start) % digits == 0)
    pieces |= other & runs.begins & ~_before(blank)
    # One other character in front of letters belongs to them, unless a blank took it.
    lone = other & runs.begins & (runs.end - runs.start == 1) & ~_before(blank) & _after(letter)
    pieces |= letter & runs.begins & ~(_before(space & ~newline) | _before(lone))
    for length, contraction in _contractions(points, lone & (points == ord("'"))):
        pieces |= _before(contraction, length) & letter & (runs.start == np.append(-1, runs.start[:-1]))
    _white_space(pieces, space, newline, runs.begins & space & _before(other), runs.end == count, runs)
    pieces[0] = True
    return [int(at) for at in np.flatnonzero(pieces)]


def _contractions(points: Places, apostrophe: Flags) -> list[tuple[int, Flags]]:
    """Where contractions of two and of three characters begin."""

    def letters(chars: str) -> Flags:
        return np.isin(points, [ord(char) for char in chars])

    # Without regard to case, U+017F is an s.
    short = apostrophe & _after(letters("sSdDmMtT\u017f"))
    long = np.zeros(len(points), np.bool_)
    for first, second in ("lL", "lL"), ("vV", "eE"), ("rR", "eE"):
        long |= _after(letters(first)) & _after(letters(second), 2)
    return [(2, short), (3, apostrophe & ~short & long)]


def deepseek(text: str) -> list[int]:
    """Where the pieces of DeepSeek V3's three patterns begin, in characters."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype="<u4").astype(np.int64)
    count = len(points)
    if not count:
        return []
    digit, space = members(r"\p{N}", points), members(r"\s", points)
    word = (members(r"\p{L}", points) | members(r"\p{M}", points)) & ~digit
    symbol, east = members(r"[\p{P}\p{S}]", points), members(_KANA_AND_HAN, points)
    newline, blank = np.isin(points, (10, 13)), points == 32
    rest = ~(word | digit | space | symbol)
    # The first two patterns cut out digits and kana with ideographs; the third one sees what is between.
    section = digit + 2 * east
    cuts = np.append(True, section[1:] != section[:-1])
    ends = np.append(cuts[1:], True)
    runs = _runs(word + 2 * digit + 3 * space + 4 * symbol, cuts)

    def before(flags: Flags) -> Flags:
        return _before(flags) & ~cuts

    def after(flags: Flags) -> Flags:
        return _after(flags) & ~ends

    pieces = cuts | (digit & ((np.arange(count) - runs.start) % 3 == 0))
    pieces |= symbol & runs.begins & ~before(blank)
    lower = points | 32
    ascii_letter = (lower >= ord("a")) & (lower <= ord("z")) & (points < 128)
    ascii_symbol = (points > 32) & (points < 127) & ~ascii_letter & ~((points >= ord("0")) & (points <= ord("9")))
    lone = symbol & runs.begins & (runs.end - runs.start == 1) & ~before(blank) & ascii_symbol & after(ascii_letter)
    pieces |= word & runs.begins & ~(before(space & ~newline) | before(rest) | before(lone))
    # Behind such a symbol only ASCII letters follow in the same piece.
    places = np.arange(count)
    foreign = np.minimum.accumulate(np.where(word & ~ascii_letter, places, count)[::-1])[::-1]
    entered = before(lone) & word & runs.begins
    stops = foreign[entered]
    pieces[stops[stops < runs.end[entered]]] = True
    pieces |= rest & (runs.begins | after(word))
    _white_space(pieces, space, newline, runs.begins & space & before(symbol), ends, runs)
    pieces |= cuts
    return [int(at) for at in np.flatnonzero(pieces)]
