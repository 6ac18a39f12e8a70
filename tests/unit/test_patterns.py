"""Patterns of reasoning against a small set of answers that were labelled by hand: c, s and p, as a reader sees them."""

import pandas as pd
import pytest

from sage import patterns

NAMES = {"c": "constraint set-up", "s": "structural reasoning", "p": "proof by contradiction"}
LABELLED = [
    ("c", "Let $x$ be the number of apples. Then $3x + 2 = 14$, so $x = 4$."),
    ("c", "Denote the sides by a and b. The perimeter gives 2a + 2b = 20 and the area gives ab = 24."),
    ("c", "Define f(n) as the cost. We need f(n) \\le 50, which holds for n up to 7."),
    ("c", "Call the two numbers m and n. They satisfy the conditions that their sum is 9 and their product 20."),
    ("c", "Set $y$ to the height of the tower. By Pythagoras, y^2 + 9 = 25."),
    ("c", "Suppose the train travels at v km/h. Then 120/v = 2, hence v is 60."),
    ("s", "We consider two cases. Case 1: n is even. Case 2: n is odd. Both give 12."),
    ("s", "By symmetry, each of the six faces is equally likely, so the answer is 1/6."),
    ("s", "The parity of the sum never changes, so it is an invariant and we cannot reach 0."),
    ("s", "We prove the formula by induction on n; the base is clear."),
    ("s", "By the pigeonhole principle two of the seven integers leave the same remainder."),
    ("s", "Without loss of generality the first coin is the heavy one."),
    ("s", "There is a bijection between such paths and subsets of size 4, so there are 70."),
    ("s", "Split by the leading digit. If it is 1 there are 9 numbers, if it is 2 there are 8, and so on."),
    ("cs", "Let $a_n$ be the count. The recurrence $a_n = a_{n-1} + a_{n-2}$ gives $a_{10} = 89$."),
    ("p", "Assume that sqrt(2) is rational. This leads to a contradiction, as both would be even."),
    ("p", "We argue by contradiction: a largest prime would divide 1."),
    ("p", "Suppose A is a knight. Then B lies, which contradicts what A says. So A is a knave."),
    ("p", "If p were odd, then p + 1 would be even, which is impossible here. Hence p = 2."),
    ("cp", "Let n be the smallest such integer, so n > 1. Suppose n is composite; that is absurd. So n is prime."),
    ("", "Adding the numbers gives 17, so the answer is 17."),
    ("", "The area of the circle is 9 pi."),
    ("", "It is impossible to read the figure, but 12 looks right."),
    ("", "Let us compute: first 5, then 8. The result is 13."),
    ("", "In case of doubt, multiply by 2. We get 26."),
    ("", "The equation is given. Its root is 3."),
]
# What a reader sees and the expressions do not, or the other way: (pattern, place of the text).
KNOWN = {("c", 5), ("s", 13)}


@pytest.mark.parametrize("letter", NAMES)
def test_agreement_with_the_labels(letter):
    found = [patterns.PROSE[NAMES[letter]](text) for _, text in LABELLED]
    wrong = {(letter, i) for i, (labels, _) in enumerate(LABELLED) if found[i] != (letter in labels)}
    assert wrong == {miss for miss in KNOWN if miss[0] == letter}
    assert len(wrong) <= 0.1 * len(LABELLED)


KNIGHTS = [
    ("", "!AKBN"),
    ("c", "aBNbAK!AKBN"),
    ("cs", "SAKaBN!AKBN"),
    ("s", "SAKSBN!AKBN"),
    ("csp", "SAKaBNbXRANaBK!ANBK"),
    ("cs", "SAKaBNbX!AKBN"),  # a contradiction without its consequence
    ("", "!SAKaBN"),  # after the answer
]


@pytest.mark.parametrize(("labels", "text"), KNIGHTS)
def test_derivations_of_knights_and_knaves(labels, text):
    assert {letter for letter, name in NAMES.items() if patterns.KNIGHTS[name](text)} == set(labels)


def test_shares_count_every_completion():
    found = patterns.shares(pd.Series(["aBN!AK", "!AK", "aBN!AK", "SAK!AK"]), patterns.KNIGHTS)
    assert found == {"constraint set-up": 0.5, "structural reasoning": 0.25, "proof by contradiction": 0.0}
