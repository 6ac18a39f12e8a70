"""The answer region: the part of a completion that is graded, and nothing else of it.

In: the text of a completion. Out: the text between the last pair of answer tags; or, where the rule says so and there are
no tags, what stands in the last box. Both in time linear in the text, whatever it is.
"""

from typing import Literal

OPEN, CLOSE = "<SOLUTION>", "</SOLUTION>"
BOXES = ("\\boxed", "\\fbox")
Rule = Literal["tags", "tags_or_box", "box"]


def region(text: str, rule: Rule) -> str | None:
    """Return the answer region of ``text``, or None where there is none (``rule``: where to look for it)."""
    found = last_tagged(text) if rule != "box" else None
    if found is None and rule != "tags":
        found = last_box(text)
    if found is None:
        return None
    inner = last_box(found)
    return (found if inner is None else inner).strip()


def last_tagged(text: str) -> str | None:
    """Return what stands between the last opening tag that is closed and its closing tag."""
    end = text.rfind(CLOSE)
    start = text.rfind(OPEN, 0, end) if end >= 0 else -1
    return text[start + len(OPEN) : end] if start >= 0 else None


def last_box(text: str) -> str | None:
    """Return what stands in the last box whose braces are balanced from it on; a box without braces has one word."""
    start = max(text.rfind(box) for box in BOXES)
    if start < 0:
        return None
    rest = text[start:].removeprefix(BOXES[0]).removeprefix(BOXES[1]).lstrip()
    if not rest.startswith("{"):
        return rest.split("$")[0].split()[0] if rest.split("$")[0].split() else None
    depth, escaped = 0, False
    for i, character in enumerate(rest):
        if not escaped and character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return rest[1:i]
        escaped = character == "\\" and not escaped
    return None
