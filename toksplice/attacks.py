"""Attacks on the rules by which a splice is exact, each by the name of the rule it tries to break.

An attack is the forms that one fragment of a text takes, one after another: the first is put somewhere, and each
following one replaces it by the smallest edit between the two. What is attacked:

R0   every stage has its own, smaller limit: text glued to an added token or to a mark that comes later
R1   what an attempt read decides its outcome: the end of the text, and alternatives that looked further and failed
R2   a scan restarts between characters and outside matches only: digits and punctuation in the bytes of a character
R3   how far to go back: boundaries that look settled and are not, several of them in a row
R4   where to resume on the right: runs whose pieces depend on where the run began
R5   added tokens: begun, completed, torn, swallowing white space, whole words only, one inside another
R6   normal forms: characters that compose or reorder to the left
R7   places of byte tokens and of marks put in front: characters outside the vocabulary, runs, the start of a section
R8   words cut at white space: a joiner or a mark behind a space
R9   words that are limited in length, or joined by characters that a normalizer deletes
R10  graphemes under a character map: pairs that are replaced together, characters that vanish at a section's start
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from toksplice import alphabets

Forms = Sequence[str]
Attack = Callable[[random.Random, Sequence[str]], Forms]
"""From a source of chance and the added tokens (at least one) to at least two forms of a fragment."""

MAX_RUN = 600
"""Longest run in units; a window of the reference holds fewer."""


def log_uniform(rng: random.Random, most: int) -> int:
    """A number from 1 to `most`, each order of magnitude as likely as the next."""
    return min(most, int((most + 1) ** rng.random()))


def _letters(rng: random.Random) -> str:
    return rng.choice(alphabets.WORDS)


def _mark(rng: random.Random) -> str:
    return rng.choice(alphabets.MARKS)


def _script(rng: random.Random) -> str:
    return rng.choice(alphabets.SCRIPTS[rng.choice(tuple(alphabets.SCRIPTS))])


def _cut(rng: random.Random, token: str) -> int:
    """A place strictly inside `token`, if it has one."""
    return rng.randrange(1, len(token)) if len(token) > 1 else 0


# R0


def _glued_token(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Punctuation or a word makes one piece with the beginning of an added token, until the token is complete."""
    token = rng.choice(tokens)
    cut, glue = _cut(rng, token), rng.choice((*alphabets.PUNCTUATION, *alphabets.WORDS))
    return glue + token[:cut], glue + token, glue + token + rng.choice(alphabets.PUNCTUATION)


def _glued_mark(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """The end of a section composes with what comes: a letter, a mark, and an added token in between."""
    token, base = rng.choice(tokens), _letters(rng)
    return base, base + _mark(rng), base + token + _mark(rng), base + _mark(rng) + token


def _settled_section(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A section that an added token ends is settled, until that token goes."""
    token, base = rng.choice(tokens), rng.choice(("It'", "What?", "a \n ", "1234", "x  "))
    return base + token, base + token + base, base + base


def _replaced_stub(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """The tail of a rendered chat: an opened block of tokens is taken back for an answer."""
    first, second = rng.choice(tokens), rng.choice(tokens)
    return f"{first}\n\n{second}\n\n", f"Hello{second}\n", f"{first}\n"


# R1


def _seen_end(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Pieces that ended because the text did, and grow."""
    kind = rng.choice(("punctuation", "space", "newline", "word", "number"))
    if kind == "punctuation":
        mark = rng.choice(alphabets.PUNCTUATION)
        return f"What{mark}", f"What{mark}{mark}", f"What{mark}{mark}\n", f"What{mark}//"
    if kind == "space":
        space = rng.choice(alphabets.SPACES) * rng.randrange(1, 4)
        return f"a{space}", f"a{space}b", f"a{space}\n", f"a{space}\u0301"
    if kind == "newline":
        return "a.\n", "a.\n\n b", "a.\n\n\u0301", "a.\n"
    if kind == "word":
        return "caf", "cafe", "cafe\u0301 x", "cafe\u0301s"
    digits = rng.choice(alphabets.DIGITS)
    return "n=" + digits[:2], "n=" + digits[:3], "n=" + digits, "n=" + digits[:1] + "x"


def _contraction(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """An apostrophe waits for letters; case folding makes more of them than one expects."""
    word = rng.choice(("I", "it", "WE", "o", "1", " ", "s", "É", "日"))
    tail = rng.choice(("ll", "LL", "Ve", "re", "s", "\u017f x", "d", "m", "t1", "lL"))
    quote = rng.choice("'’`")
    return (*(word + quote + tail[:size] for size in range(len(tail) + 1)), word + quote + tail + "a")


def _gap_end(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Text that no alternative matches ends where a match begins, which may look further right."""
    gap = rng.choice(("\u200d\u200d", "\u00ad", "\u200d", "\x00", "\u0301\u0301", "\ue000"))
    return gap + "a", gap, gap + " a", gap + " \u0301", gap + " "


# R2


def _bytes_of_a_character(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Levels that split the bytes of a character: a digit or a mark beside letters whose bytes look like either."""
    char = rng.choice("òó³²¹ñ٣３日字😀\u00ad\u0330\u0660") * rng.randrange(1, 4)
    digits = rng.choice(("1", "12", "123", "1234"))
    mark = rng.choice(alphabets.PUNCTUATION)
    return char, char + digits, digits + char + digits, char + mark + digits, mark + char


def _across_levels(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """What one level splits off, a later one would have joined: ideographs, numbers, marks and letters in a row."""
    parts = rng.choices(("中", "か", "1", "123", "!", "(", "ab", "é", "\n", " ", "가", "\u0e01", "\u00ad"), k=4)
    row = "".join(parts)
    return row, row + rng.choice(("a", "Z", "1", "\n", "!")), row[:-1], rng.choice(parts) + row, row


# R3


def _unsettled_boundaries(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A run of white space in several pieces, of which only one far to the left is settled."""
    run = "".join(rng.choices((" ", "\n", "\t", "\u000b", "\r", "\u3000", "\n\n"), k=log_uniform(rng, 40)))
    ends = rng.sample(("１２", "\r\n", "x", "(", "\n", " ", "\u0301", ""), 4)
    return tuple(rng.choice(("^(>", "x", "")) * (place == 0) + run + end for place, end in enumerate(ends))


def _growing_run(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A run that grows by one character at a time."""
    unit = rng.choice((" ", "\n", "\t", "=", "-", "a", "'", "\u0301", "0", "字"))
    size = log_uniform(rng, 60)
    return (*(unit * (size + more) for more in range(4)), unit * size + "x")


# R4


def _digit_phase(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Groups of digits are counted from where the run begins: one digit more moves them all."""
    digits = "".join(rng.choices(rng.choice(alphabets.DIGITS), k=log_uniform(rng, MAX_RUN)))
    more = rng.choice(digits)
    return f"n={digits}", f"n={more}{digits}", f"n={more}{more}{digits} ", f"n={digits}"


def _alternating_phase(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Runs of a pattern in which each piece begins where the last one ended."""
    unit = rng.choice(("'s", "1〇", "+\u0301", "$\u0308", "aA", "Aa", "\r\n", "x1", "'ll", "^\u20dd", "\n ", "ab", "🇩"))
    run = unit * log_uniform(rng, MAX_RUN // 2)
    head = rng.choice(("x", "1", " ", "'", "A", "+", "\n"))
    return run, head + run, head + rng.choice(("s", "1", "A", " ")) + run, head + run[1:]


def _long_run(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """One character, hundreds of times: nothing to hold on to."""
    unit = rng.choice(("a", "^", "=", " ", "\n", "é", "字", "'", "😀", "\u0301", ".", "▁", "Z"))
    run = unit * log_uniform(rng, 3 * MAX_RUN)
    return run, unit + run, run[: len(run) // 2] + "b" + run[len(run) // 2 :], run


# R5


def _torn_token(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A token is begun, completed, torn apart by a character, and joined again by its deletion."""
    token = rng.choice(tokens)
    cut, inside = _cut(rng, token), rng.choice(("x", " ", "\n", "\u0301", "<", token[:1]))
    torn = token[:cut] + inside + token[cut:]
    begun = (token[:cut], token, torn, token)
    return rng.choice((begun, (torn, token, token[cut:]), (token[:cut], token[:cut] + token, token + token)))


def _swallowed_space(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """White space before and behind a token, which some tokens swallow, grows and goes."""
    token = rng.choice(tokens)
    left = rng.choice(("", " ", " \n ", "\t", "\u3000"))
    right = rng.choice((" ", "\n", " \u3000", "\n\n "))
    return f"a{left}", f"a{left}{token}", f"a{left}{token}{right}", f"a{left}{token}{right}\u3000y", f"a{token}y"


def _whole_word(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A token that counts only as a whole word gets a neighbour."""
    token = rng.choice(tokens)
    neighbour = rng.choice(("s", "_", "1", "é", "\u0301", "\u200d", "-", token[:1]))
    return f" {token}", f" {token}{neighbour}", f" {token} ", f" {neighbour}{token}", f"{token}.{token}"


def _overlapping_tokens(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Two tokens that could share characters: the leftmost and longest wins, until the left one is torn."""
    first, second = rng.choice(tokens), rng.choice(tokens)
    joined = first[: -rng.randrange(1, len(first))] + second if len(first) > 1 else first + second
    return joined, first + second, first[1:] + second, first.upper() + second


def _token_run(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Tokens that are runs of white space, taken longest first from where the run begins."""
    unit = rng.choice((" ", "\n", "\t", rng.choice(tokens)))
    size = log_uniform(rng, 80)
    return "x" + unit * size, "x" + unit * (size + 1), "x" + unit * (size + 7) + "y", "x" + unit * (size // 2)


# R6


def _hangul(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A trailing consonant composes with the syllable that two characters left of it have become."""
    lead, vowel, trail = (rng.choice(kind) for kind in (alphabets.LEADING, alphabets.VOWELS, alphabets.TRAILING))
    syllable = rng.choice(alphabets.SYLLABLES)
    jamo = (lead, lead + vowel, lead + vowel + trail, lead + trail)
    return rng.choice((jamo, (syllable, syllable + trail, syllable + vowel, trail + syllable)))


def _composing_starter(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A starter that composes to the left."""
    first, second = rng.choice(alphabets.STARTERS_THAT_COMPOSE)
    return first, first + second, first + _mark(rng) + second, second


def _reordered_marks(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Marks that sort among themselves, and compose with a base past others."""
    base = rng.choice(("a", "e", "q", "É", "\u212b", "\u2126", "=", " ", "\u0f71", "か"))
    marks = rng.choices(alphabets.MARKS, k=rng.choice((1, 2, 3, 4, 40)))
    some = "".join(marks)
    return base, base + some, base + some + _mark(rng), base + _mark(rng) + some, some


def _compatibility(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Characters that fall apart, so that a new one composes with their last part."""
    char = rng.choice(("ﬁ", "½", "ｶ", "\u0344", "\u1fc1", "\u00a8", "ﷺ", "①", "\u0e33", "\u0958", "Ａ"))
    return char, char + _mark(rng), char + "ﾞ", "x" + char


# R7


def _byte_tokens(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Characters that are several byte tokens, which all have one span."""
    char = rng.choice((*alphabets.RARE, *alphabets.CONTROLS, "\t", "😀", "𠀀"))
    return char, char + "a", char + char, "a" + char + char + "\u0301", char * 5 + "b"


def _mark_in_front(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """What stands first in a section gets a mark, or loses it to a space of its own."""
    token = rng.choice(("", rng.choice(tokens)))
    return f"{token}x  Hello", f"{token} Hello", f"{token}Hello", f"{token}▁Hello", f"{token}"


def _small_alphabet(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Few letters, so that merges could come about anywhere."""
    letters = rng.choice(("ab", "abc", "▁a", " the", "in", "-=", "er ", "el▁"))
    word = "".join(rng.choice(letters) * rng.choice((1, 1, 2, 3)) for _ in range(log_uniform(rng, 60)))
    at = rng.randrange(len(word) + 1)
    return word, word[:at] + rng.choice(letters) + word[at:], word[:at], word[at:]


# R8, R9, R10


def _behind_a_space(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A joiner, a mark or a spacing sign behind white space."""
    space = rng.choice(alphabets.SPACES)
    sign = rng.choice(("\u200d", "\u200c", "\u0345", "\u0903", "\u0600", "\ufe0f", "▁", "\u00ad"))
    return f"a{space}", f"a{space}{sign}", f"a{space}{sign}{_mark(rng)}", f"a{space}{sign}b"


def _long_word(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A word just within the limit, at it, and beyond."""
    letter = rng.choice(("a", "é", "e\u0301", "x", "1"))
    return letter * 99, letter * 100, letter * 101, letter * 50 + " " + letter * 51, letter * 50 + "\x0b" + letter * 51


def _joined_words(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Two words around a character that is deleted, or that is a word by itself."""
    joint = rng.choice((*alphabets.CONTROLS, *alphabets.CJK, " ", "\u0301", "-"))
    return f"foo{joint}", f"foo{joint}bar", f"foo{joint}{joint}bar", f"foo {joint}bar", "foobar"


def _grapheme_pair(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Characters that a map takes together."""
    first, second = rng.choice(alphabets.GRAPHEME_PAIRS)
    return first, first + second, first + second + first, first + " " + second, second


def _vanishing_start(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """Characters that vanish where a section begins, and take the count of those behind with them."""
    gone = rng.choice(alphabets.CONTROLS) * rng.randrange(1, 4)
    token = rng.choice(("", rng.choice(tokens)))
    return f"{token}{gone}", f"{token}{gone} a a a", f"{token} {gone}a a", f"{token}a a a"


def _exotic_word(rng: random.Random, tokens: Sequence[str]) -> Forms:
    """A word of another script, begun, whole, and with a mark."""
    word, other = _script(rng), _script(rng)
    return word[:1], word, word + _mark(rng), f"{word} {other}", word + other


ATTACKS: dict[str, tuple[Attack, ...]] = {
    "R0": (_glued_token, _glued_mark, _settled_section, _replaced_stub),
    "R1": (_seen_end, _contraction, _gap_end),
    "R2": (_bytes_of_a_character, _across_levels),
    "R3": (_unsettled_boundaries, _growing_run),
    "R4": (_digit_phase, _alternating_phase, _long_run),
    "R5": (_torn_token, _swallowed_space, _whole_word, _overlapping_tokens, _token_run),
    "R6": (_hangul, _composing_starter, _reordered_marks, _compatibility),
    "R7": (_byte_tokens, _mark_in_front, _small_alphabet),
    "R8": (_behind_a_space, _exotic_word),
    "R9": (_long_word, _joined_words),
    "R10": (_grapheme_pair, _vanishing_start),
}
"""Rule -> the attacks on it."""
