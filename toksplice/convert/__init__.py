"""Builds a Hugging Face tokenizer.json from the native files of vocabularies.

    rank file of tiktoken ──┐
    tekken.json ────────────┤
    SentencePiece .model ───┼─> model, normalizer, pre-tokenizer ─> document ─> the bytes of a tokenizer.json
    GGUF vocabulary ────────┘

Each converter is a pure function of the file's bytes and of the few facts that the file does not hold (the
split pattern, the names of special tokens), so the result is always the same bytes and can be pinned by its hash.
What a converter does not understand it refuses with `TokenizerError`. Converted files put no special tokens
around a text.
"""
