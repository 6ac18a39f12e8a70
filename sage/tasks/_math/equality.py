"""When two written answers are equal: math-verify parses and compares; what it lets through or misses is decided here.

The policy, each line of it a test:

- Percent, degree and currency signs and units in text are not read: 28 \\% is 28, 90^\\circ is 90, \\$36 is 36.
- Leading zeros and thousands separators mean nothing: 033 is 33, 1{,}000 is 1000.
- Two exact numbers are equal only where they are exactly equal. A decimal equals an exact number from which it differs by
  rounding at its sixth decimal, at most by 1e-5 of its size.
- An inequality and the interval of its solutions are equal, both ways round.
- A tuple is not a set in braces, and its order counts; a bare list counts as a set.
- A base is part of a number. An answer may leave out the base of the gold answer, for the question names it; another base
  is another number.
- Texts are compared without case, brackets and commands.
- An answer that lists several candidates is the set of them, so it is wrong where one is asked for.
- An empty answer, and one of more than 1,000 characters, is no answer.
"""

import logging
import re
import unicodedata
from functools import lru_cache
from typing import Any

LONGEST = 1000  # characters; the longest gold answer of the benchmarks has 53
RELATIVE = 1e-5
_SIGNS = re.compile(r"\\?%|\\?\$|\\(?:,|!|;|:|\s)|\^\{?\\circ\}?|\\(?:degree|displaystyle)\b")
_IDLE = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])|^\s+|\s+$")
_WHOLE = re.compile(r"^-?\d{1,1000}$", re.ASCII)
_BASE = re.compile(r"^\s*([0-9][0-9A-Za-z]*)_\{?(?:\\text\{)?(\d+)\}*\s*$")


class Unparseable(ValueError):
    """A text that is not an answer."""


def equal(gold: str, answer: str) -> bool:
    """Return whether ``answer`` says what ``gold`` says.

    Raises :class:`Unparseable` where the answer is none, and ValueError where the gold answer is not one.
    """
    try:
        expected = parsed(gold)
    except Unparseable:
        raise ValueError(f"the gold answer {gold!r} cannot be parsed") from None
    found = parsed(answer)
    if _base(answer) is not None and _base(answer) != _base(gold):
        value = _in_base(answer)
        return value is not None and value == _in_base(gold)
    if plain(gold) == plain(answer):
        return True
    if _braced(gold) != _braced(answer) and _ordered(gold) != _ordered(answer):
        return False
    return _compare(expected, found) and not _numbers_differ(expected[0], found[0])


def obvious(gold: str, answer: str) -> bool | None:
    """Return what needs no parser: the same text is equal, two whole numbers are compared; None for all else."""
    expected, found = plain(gold), plain(answer)
    if not expected or not found or len(found) > LONGEST:
        return None
    if expected == found:
        return True
    return int(expected) == int(found) if _WHOLE.match(expected) and _WHOLE.match(found) else None


def plain(text: str) -> str:
    """Return ``text`` without what the policy does not read: signs, and white space but for that between two words."""
    cleaned = "".join(c for c in text if unicodedata.category(c)[0] != "C" or c == "\n")
    return _IDLE.sub("", _SIGNS.sub(" ", cleaned.replace("{,}", "")))


@lru_cache(maxsize=8192)
def parsed(text: str) -> Any:
    """Return math-verify's readings of an answer, the first of them a sympy object or a text."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that nobody limits its time: the pool does
    cleaned = plain(text)
    if not cleaned or len(cleaned) > LONGEST:
        raise Unparseable(text[:50])
    config = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
    found = parse(f"\\boxed{{{cleaned}}}", extraction_config=config, parsing_timeout=None, raise_on_error=False)
    if not found:
        raise Unparseable(text[:50])
    return found


def _compare(expected: Any, found: Any) -> bool:
    """Return math-verify's verdict, either way round."""
    from math_verify import verify

    return any(
        verify(a, b, timeout_seconds=None, raise_on_error=False) for a, b in ((expected, found), (found, expected))
    )


def _numbers_differ(expected: Any, found: Any) -> bool:
    """Return whether both are numbers that are not the same: math-verify rounds to six decimals, also small numbers."""
    import sympy

    if not all(isinstance(x, sympy.Expr) and x.is_number and x.is_finite for x in (expected, found)):
        return False
    distance, size = abs(sympy.N(expected - found, 30)), max(abs(sympy.N(expected, 30)), abs(sympy.N(found, 30)))
    if expected.has(sympy.Float) or found.has(sympy.Float):
        return bool(distance > RELATIVE * size)
    return bool(distance > sympy.Float("1e-20", 30) * size)


def _base(text: str) -> int | None:
    match = _BASE.match(plain(text))
    return int(match[2]) if match and 2 <= int(match[2]) <= 36 else None


def _in_base(text: str) -> int | None:
    """Return the value of a whole number written in its base, or in base 10."""
    match = _BASE.match(plain(text))
    try:
        return int(match[1], int(match[2])) if match else int(plain(text))
    except ValueError:
        return None


def _braced(text: str) -> bool:
    return "\\{" in text


def _ordered(text: str) -> bool:
    return plain(text).removeprefix("\\left").startswith("(")
