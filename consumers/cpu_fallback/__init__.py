"""The CPU fallback: encodes whole texts with the reference and hands new sessions to the repair worker."""
