"""Faults on purpose, for drills and tests: wrong answers that the shadow check has to find."""
