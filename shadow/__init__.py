"""Comparing answers with the reference. `shadow.compare` says where two answers first differ.

There is no sampling consumer in this version: `toksplice replay --verify` and the tests compare every answer.
"""
