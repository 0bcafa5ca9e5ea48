"""Drawn breakages that nothing can find, and why."""

SURVIVORS: dict[str, str] = {}
