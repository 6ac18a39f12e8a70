"""When two written answers are equal: math-verify parses and compares; what it lets through or misses is decided here.

The policy, each line of it a test:

- Percent, degree and currency signs and units in text are not read: 28 \\% is 28, 90^\\circ is 90, \\$36 is 36. Text with a
  digit beside a number is no unit, so 5 \\text{ (or 6)} is not 5.
- Leading zeros, thousands separators and a full stop at the end mean nothing: 033 is 33, 1{,}000 and 1\\,000 are 1000.
- Two exact numbers are equal only where they are exactly equal. A decimal equals an exact number from which it differs by
  rounding at its sixth decimal, at most by 1e-5 of its size.
- An inequality and the interval of its solutions are equal, both ways round; a union and its inequalities are not.
- A tuple is not a set in braces, and its order counts; a bare list counts as a set, but beside a tuple as a tuple.
- A base is part of a number. An answer may leave out the base of the gold answer, for the question names it; another base
  is another number.
- Texts are compared without case, brackets and commands.
- Of several boxes the last counts (:mod:`sage.tasks._math.region`), and of a chain of equations the last side.
- An answer that lists several candidates is the set of them, so it is wrong where one is asked for.
- An empty answer, and one of more than 1,000 characters, is no answer.
"""

import logging
import re
import unicodedata
from fractions import Fraction
from functools import lru_cache
from typing import Any

LONGEST = 1000  # characters; the longest gold answer of the benchmarks has 53
RELATIVE = 1e-5
_SIGNS = re.compile(
    r"\\?%|\\?[$€£¥]|(?<!\\)\\(?:,|!|;|:|\s)|\^\{?\\circ\}?|°|\\(?:degree|displaystyle)\b"
    r"|(?<=\d)\s*(?:percent|degrees?|dollars)\b"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,?\\!\s*|\\,)(?=\d{3}(?!\d))")
_TEXT = re.compile(r"\\(?:text[a-z]*|mathrm|mbox)\s*\{([^{}]*)\}")
_IDLE = re.compile(r"(?<![0-9A-Za-z])\s+|\s+(?![0-9A-Za-z])|^\s+|\s+$")
_DECIMAL = re.compile(r"-?\d{1,50}\.\d{1,50}", re.ASCII)
_RATIONAL = re.compile(r"-?\d{1,1000}|-?\d{1,50}/\d{1,50}|" + _DECIMAL.pattern, re.ASCII)
_FRACTION = re.compile(
    r"(?P<sign>-?)(?P<whole>\d{0,50})\\[dt]?frac(?:\{(?P<a>\d{1,50})\}\{(?P<b>\d{1,50})\}|(?P<c>\d)(?P<d>\d))", re.ASCII
)
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
    if plain(gold) == plain(answer) or (_words(gold) is not None and _words(gold) == _words(answer)):
        return True
    if _has_candidate(answer) and not _has_candidate(gold):
        return False
    if _braced(gold) != _braced(answer) and _ordered(gold) != _ordered(answer):
        return False
    if _listed(gold) != _listed(answer):
        expected, found = (
            parsed(f"({text})") if _listed(text) and _ordered(other) else read
            for text, other, read in ((gold, answer, expected), (answer, gold, found))
        )
    return _compare(expected, found) and not _numbers_differ(expected[0], found[0])


def obvious(gold: str, answer: str) -> bool | None:
    """Return what needs no parser: the same text is equal, two numbers are compared; None for all else."""
    if len(answer) > LONGEST:  # before anything that takes time in proportion
        return None
    expected, found = plain(gold), plain(answer)
    if not expected or not found:
        return None
    if expected == found:
        return True
    a, b = number(expected), number(found)
    if a is None or b is None:
        return None
    if a == b or not (_DECIMAL.fullmatch(expected) or _DECIMAL.fullmatch(found)):
        return a == b
    return False if abs(a - b) > 2 * RELATIVE * max(abs(a), abs(b)) else None


def number(text: str) -> Fraction | None:
    """Return the value of a :func:`plain` text that is a whole number, a decimal, a fraction or a mixed number."""
    match = _FRACTION.fullmatch(text)
    try:
        if not match:
            return Fraction(text) if _RATIONAL.fullmatch(text) else None
        part = Fraction(int(match["a"] or match["c"]), int(match["b"] or match["d"]))
    except ZeroDivisionError:
        return None
    value = int(match["whole"] or 0) + part
    return -value if match["sign"] else value


def vote(answer: str) -> str | None:
    """Return what is equal for equal numbers and for equal texts, None where there is no answer."""
    text = plain(answer) if len(answer) <= LONGEST else ""
    value = number(text)
    return (text or None) if value is None else str(value)


def plain(text: str) -> str:
    """Return ``text`` without what the policy does not read: signs, and white space but for that between two words."""
    cleaned = "".join(c for c in text if unicodedata.category(c)[0] != "C" or c == "\n")
    return _IDLE.sub("", _SIGNS.sub(" ", _THOUSANDS.sub("", cleaned))).removesuffix(".")


@lru_cache(maxsize=8192)
def parsed(text: str) -> Any:
    """Return math-verify's readings of an answer, the first of them a sympy object or a text."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that nobody limits its time: the pool does
    cleaned = plain(text) if len(text) <= LONGEST else ""
    if not cleaned:
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


def _listed(text: str) -> bool:
    """Return whether a text is a list without brackets of any kind, and no condition."""
    return "," in plain(text) and not re.search(r"[(<>=\[]|\\(?:\{|[lg]e|in|n?eq|cup|text|begin)", plain(text))


def _words(text: str) -> str | None:
    """Return what a text says, None where it is not one: a text has two letters at least and no mathematics."""
    words = " ".join(_TEXT.sub(r"\1", _SIGNS.sub(" ", text)).casefold().split()).strip(" .()")
    return words if re.search("[a-z].*[a-z]", words) and not re.search(r"[\\^_={}<>+*/|]", words) else None


def _has_candidate(text: str) -> bool:
    """Return whether there is a number in words beside something else, as in 5 (or 6)."""
    return bool(re.search(r"\d", _TEXT.sub("", text))) and any(re.search(r"\d", inner) for inner in _TEXT.findall(text))


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
