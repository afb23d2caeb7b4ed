"""Added tokens, as far as a cut beside them must know.

The reference cuts a text at its added tokens before anything else, leftmost and longest first. A cut that
no occurrence of any added token touches is the same to that search from either side, so the one question
asked here is: does an occurrence of some content span or touch position c? (Rule R5 of docs/exactness.md
lets more cuts pass; this is its simple, stricter form.)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class AddedTokens:
    """The added tokens of one tokenizer.json; `normalize` is its normalizer, if it has one.

    A token marked "normalized" is looked for in its normalized form, so both of its forms count.
    """

    def __init__(self, entries: Iterable[Mapping[str, Any]], normalize: Callable[[str], str] | None = None) -> None:
        kept = [e for e in entries if e["content"]]
        #: Some token swallows the white space to its left, which can reach back to a cut.
        self.strips_left: bool = any(e.get("lstrip") for e in kept)
        #: Some token is matched after normalization, so the text beside a cut must be left alone by it.
        self.match_normalized: bool = any(e.get("normalized") for e in kept)
        contents = {e["content"] for e in kept}
        if normalize is not None:
            contents |= {normalize(e["content"]) for e in kept if e.get("normalized")} - {""}
        self.longest: int = max(map(len, contents), default=0)
        self._by_first: dict[str, list[str]] = defaultdict(list)
        for content in contents:
            self._by_first[content[0]].append(content)

    def touch(self, text: str, cut: int) -> bool:
        """True when an occurrence [u, v) of a content in `text` has u <= cut <= v."""
        for start in range(max(0, cut - self.longest), min(cut + 1, len(text))):
            for content in self._by_first.get(text[start], ()):
                if start + len(content) >= cut and text.startswith(content, start):
                    return True
        return False
