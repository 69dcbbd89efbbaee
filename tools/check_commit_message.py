"""Refuse a commit message whose first line is empty, longer than 72 characters, or not followed by a blank line."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72


def problem(message: str) -> str | None:
    """What is wrong with a message, or None.

    >>> problem("Length: floors of the slope"), problem("")
    (None, 'the subject is empty; say in a few words what changes.')
    """
    subject, *body = [line for line in message.splitlines() if not line.startswith("#")] or [""]
    if not subject.strip():
        return "the subject is empty; say in a few words what changes."
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters; allowed are {LONGEST}. Move the rest to the body."
    if body and body[0].strip():
        return "the second line is not blank; put one between the subject and the body."
    return None


if __name__ == "__main__":
    wrong = problem(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(f"commit message: {wrong}" if wrong else 0)
