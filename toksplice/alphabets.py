"""The characters that tokenizers trip over, by kind: what adversarial texts are made of."""

from __future__ import annotations

# fmt: off
WORDS = (
    "the", "of", "and", "token", "Tokenizer", "HTTPServer", "snake_case_name", "camelCase", "x", "I", "def",
    "return", "self", "import", "naïve", "Straße", "İstanbul", "ǅungla", "ﬁne", "über", "don", "we", "they", "What",
    "a", "aba", "ab", "caf", "Hello",
)
CONTRACTIONS = (
    "'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'RE", "'LL", "'", "''", "'\u017f", "'Ve", "'lL",
    "’s", "'s's's", "it's", "I'm", "'sa", "'r", "'l", "'v",
)
DIGITS = (
    "0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "০১২৩৪৫৬৭৮৯", "０１２３４５６７８９", "²³¹½¼Ⅷ①〇一", "𝟎𝟏𝟐𝟑", "1〇",
)
SPACES = (
    " ", "  ", "   ", "\t", "\n", "\r", "\r\n", "\n\n", "\u00a0", "\u1680", "\u2003", "\u2028", "\u2029",
    "\u3000", "\u0085", "\u000b", "\u000c", "\u001c", "\u200b", "\u180e", "\ufeff",
)
PUNCTUATION = (
    *"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "...", "??", "//", "::", "->", "。", "、", "–", "“", "``", "''", "^(>",
)
MARKS = (
    "\u0301", "\u0308", "\u0345", "\u0327", "\u0323", "\u0334", "\u0340", "\u0344", "\u20d0", "\u20dd", "\ufe0f",
    "\u0f71", "\u0f72", "\u3099", "\u0305", "\u0903", "\u093e",
)
# Hangul consonants and vowels that compose to syllables.
LEADING = ("\u1100", "\u1112", "\u115f")
VOWELS = ("\u1161", "\u1175", "\u1160")
TRAILING = ("\u11a8", "\u11ab", "\u11c2")
SYLLABLES = ("가", "각", "힣", "\ud55c", "ㄱ", "ㅏ")
HANGUL = (*LEADING, *VOWELS, *TRAILING, *SYLLABLES)
STARTERS_THAT_COMPOSE = (
    ("\u09c7", "\u09be"), ("\u0b47", "\u0b56"), ("\u1025", "\u102e"), ("\u0bc6", "\u0bbe"), ("\u0dd9", "\u0dcf"),
    ("\U000110a5", "\U000110ba"),
)
"""Two characters, the second of which composes with the first though it may be a starter."""
EMOJI = (
    "😀", "👩\u200d👩\u200d👧", "👍🏽", "🏳\ufe0f\u200d🌈", "\u200d", "🇩🇪", "🇩", "❤\ufe0f",
    "❤", "\U0001f9ff", "🫨", "🏽", "🤷🏽\u200d♀\ufe0f", "1\ufe0f\u20e3",
)
"""With joiners, skin tones, variation selectors and flags, whole and in halves."""
GRAPHEME_PAIRS = (
    ("\r", "\n"), ("'", "'"), ("`", "`"), ("🇩", "🇪"), ("👍", "🏽"), ("👩", "\u200d👧"), ("e", "\u0301"),
    ("か", "\u3099"), ("ﾊ", "ﾞ"), ("क", "\u094dष"), ("\u0600", "1"), ("❤", "\ufe0f"),
)
CJK = (
    "日本語", "中", "文", "漢字仮名", "々", "〆", "㐀", "𠀀", "ー", "〇", "一", "\uf900", "\U0002f800",
)
SCRIPTS = {
    "latin": ("Ångström", "żółć", "đẹp", "ꝺ"),
    "cyrillic": ("Привет", "й", "и\u0306", "Ѭ"),
    "greek": ("Σίσυφος", "ς", "ΐ", "\u1fc1", "\u2126"),
    "armenian": ("բարև", "և", "Հ"),
    "hebrew": ("עברית", "שָׁלוֹם", "\ufb2a"),
    "arabic": ("العربية", "ؤ", "ﷺ", "\ufefb", "لا"),
    "devanagari": ("नमस्ते", "क्षि", "\u0958", "क\u093c"),
    "bengali": ("বাংলা", "ো", "\u09dc"),
    "tamil": ("தமிழ்", "ொ"),
    "thai": ("กำ", "ภาษาไทย", "\u0e33"),
    "georgian": ("ქართული", "Ქ"),
    "ethiopic": ("አማርኛ", "፩"),
    "kana": ("ひらがな", "カタカナ", "ｶﾞ", "が", "か\u3099"),
    "hangul": ("한국어", "한국"),
}
"""Script -> words, and characters of it that normalizers or classes treat in some way of their own."""
WIDE = ("Ａ", "ｂ", "！", "～", "＜｜", "ｉｍ", "▁", "▁▁", "Ġ", "Ċ", "ü ö ù", "ˆ", "￨")
CONTROLS = ("\x00", "\x01", "\x03", "\x08", "\x0b", "\x0c", "\x1b", "\x1c", "\x7f", "\x80", "\x85", "\u00ad")
"""Some are deleted by normalizers, some have no token of their own."""
RARE = (
    "\ue000", "\uf8ff", "\U000f0000", "\U0010ffff", "\ufffd", "\ufffe", "\u0378", "\u1e9e", "\u017f", "\u212a",
    "\u212b", "\u3000", "\U00010000", "\u0600", "½", "\u00a8", "\u037a", "\ufb01",
)
"""Private use, unassigned, non-characters, and characters that normalizers change: bytes to most vocabularies."""
# fmt: on
