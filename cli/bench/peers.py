"""Who is measured: each peer's package, pinned, and what of it is called.

A lane is one way of using one peer, such as a whole encode or an append to its session. Raising a version here is
all that it takes to measure a newer one.
"""

from __future__ import annotations

from dataclasses import dataclass

REFERENCE_PIN = "tokenizers==0.23.3"
"""Installed where a peer needs the reference itself, so that all are held to the same one."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A library. `requirements` are what pip installs for it; none: it runs on this command's own Python."""

    name: str
    package: str
    requirements: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lane:
    """One way of using a peer.

    adapter: the class in `cli.bench.peer`. steps: edits timed in a round where one costs the size of the edit;
    whole texts are encoded once a round. keeps_state: it takes part in the cases that a session is for.
    contexts: it is measured at every length of the context and not only at the middle one. encodes: it takes part in
    encoding fresh texts.
    """

    name: str
    peer: str
    adapter: str
    steps: int = 1
    keeps_state: bool = False
    contexts: bool = False
    encodes: bool = False


OURS = "toksplice"
REFERENCE = "reference"

PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, "toksplice"),
        Peer(REFERENCE, "tokenizers"),
        Peer("gigatoken", "gigatoken", ("gigatoken==0.10.0",)),
        Peer("toktier", "toktier", ("toktier==0.3.0", REFERENCE_PIN)),
        Peer("fastokens", "fastokens", ("fastokens==0.3.5",)),
        Peer("quicktok", "quicktok-v1", ("quicktok-v1==0.4.0", REFERENCE_PIN)),
        Peer("tokie", "tokie", ("tokie==0.1.4",)),
        Peer("kitoken", "kitoken", ("kitoken==0.11.1",)),
        Peer("tiktoken", "tiktoken", ("tiktoken==0.14.0",)),
    )
}
"""Peer name -> what to install."""

LANES = (
    Lane(OURS, OURS, "TokSplice", steps=20, keeps_state=True, contexts=True, encodes=True),
    Lane(REFERENCE, REFERENCE, "Reference", contexts=True, encodes=True),
    Lane("gigatoken", "gigatoken", "Gigatoken", steps=4, keeps_state=True, contexts=True, encodes=True),
    Lane("toktier encode(session=)", "toktier", "TokTierEncode", steps=2, keeps_state=True, encodes=True),
    Lane("toktier append()", "toktier", "TokTierAppend", steps=2),
    Lane("toktier append_patch()", "toktier", "TokTierPatch", steps=2),
    Lane("fastokens", "fastokens", "Fastokens", encodes=True),
    Lane("quicktok", "quicktok", "Quicktok", encodes=True),
    Lane("tokie", "tokie", "Tokie", encodes=True),
    Lane("kitoken", "kitoken", "Kitoken", encodes=True),
    Lane("tiktoken", "tiktoken", "Tiktoken", encodes=True),
)
"""Every lane, in the order in which they take their turn and are shown."""
