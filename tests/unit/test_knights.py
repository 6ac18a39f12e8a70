"""Knights and Knaves against a solver, a canonical form and a checker that share nothing with the generator."""

import collections
import itertools
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sage.errors import UserError
from sage.strict import validate
from sage.tasks import VERDICTS, Record, knights, read_records, write_records
from sage.tasks.knights import Spec, generate, logic, render

ALL_KINDS = dict.fromkeys(["literal", "not", "and", "or", "implies", "iff"], 1.0)
LAPTOP = {"literal": 0.6, "and": 0.4}


def spec(**changes) -> Spec:
    return Spec(**{"task": "knights", "split": "test", "people": [4], "size": 40, "statements": LAPTOP, **changes})


def sft(**changes) -> Spec:
    return spec(split="sft", traces={"careful": 0.4, "lazy": 0.4, "direct": 0.2}, **changes)


# --- a solver that reads the rendered text and tries everything ---


def says(text: str, roles: dict[str, bool]) -> bool:
    """Return the truth of a statement's text, by python's own operators."""
    text = re.sub(r"([A-H])([KN])", lambda m: f" {roles[m[1]] == (m[2] == 'K')} ", text)
    for sign, word in {"=": "==", ">": "<=", "~": "not", "&": "and", "|": "or"}.items():
        text = text.replace(sign, word)
    return bool(eval(text))


def solve(problem: str) -> list[str]:
    """Return every consistent answer of a rendered puzzle."""
    clauses = problem.removesuffix(";?").split(";")
    names = [clause[0].upper() for clause in clauses]
    found = []
    for values in itertools.product([True, False], repeat=len(names)):
        roles = dict(zip(names, values, strict=True))
        if all(says(clause[1:], roles) == roles[clause[0].upper()] for clause in clauses):
            found.append("".join(name + ("K" if roles[name] else "N") for name in names))
    return found


@pytest.mark.parametrize("people", range(2, 9))
@pytest.mark.parametrize("kinds", [LAPTOP, ALL_KINDS], ids=["laptop", "all"])
def test_every_puzzle_has_the_one_solution_that_it_claims(people, kinds):
    size = 3 if people == 2 else 40
    for record in knights.build(sft(people=[people], size=size, statements=kinds), seed=1):
        assert solve(record.problem) == [record.answer]
        assert render.puzzle_text(render.parse_puzzle(record.problem)) == record.problem


def brute_canonical(problem: str) -> str:
    """Return the smallest rendering over all renamings, by text alone."""
    clauses = problem.removesuffix(";?").split(";")
    n, forms = len(clauses), []
    for order in itertools.permutations(range(n)):
        to = {"ABCDEFGH"[old]: "ABCDEFGH"[new] for new, old in enumerate(order)}
        renamed = []
        for old in order:
            text = clauses[old][1:].translate(str.maketrans(to))
            for sign in "&|=":
                if sign in text:
                    text = sign.join(sorted(text.split(sign)))
            renamed.append(text)
        forms.append(";".join(renamed))
    return min(forms)


def test_the_canonical_form_is_that_of_all_permutations():
    generator = random.Random(5)
    for n in (2, 3, 4):
        found = list(itertools.islice(generate.puzzles(n, ALL_KINDS, generator), 60))
        for (p, _), (q, _) in itertools.combinations(found[:25], 2):
            same = brute_canonical(render.puzzle_text(p)) == brute_canonical(render.puzzle_text(q))
            assert (logic.canonical(p) == logic.canonical(q)) == same
        for puzzle, _ in found:
            names = generator.sample(range(n), n)
            order = sorted(range(n), key=names.__getitem__)
            assert logic.digest(tuple(logic.renamed(puzzle[p], names) for p in order)) == logic.digest(puzzle)


@pytest.mark.parametrize(("n", "count"), [(2, 10), (3, 328)])
def test_the_number_of_puzzles_of_literals_and_conjunctions(n, count):
    """Literals on anybody, oneself too, and conjunctions of two people: 10 and 328 with one solution up to renaming.

    Without literals on oneself, which the generator does not draw, they are 8 and 288.
    """
    options = []
    for _ in range(n):
        literals = [("is", q, knight) for q in range(n) for knight in (True, False)]
        options.append([*literals, *generate.statements("and", 0, n)])
    found = {logic.canonical(p) for p in itertools.product(*options) if logic.unique_solution(p) is not None}
    assert len(found) == count
    drawn = [[*generate.statements("literal", p, n), *generate.statements("and", p, n)] for p in range(n)]
    found = {logic.canonical(p) for p in itertools.product(*drawn) if logic.unique_solution(p) is not None}
    assert len(found) == {10: 8, 328: 288}[count]


def test_splits_share_no_puzzle_up_to_renaming_and_test_sets_have_none_twice():
    sets = {
        "sft": knights.build(sft(people=[3, 4], size=600), seed=1),
        "rl": knights.build(spec(split="rl", people=[3, 4], size=90), seed=1),
        "dev": knights.build(spec(split="dev", people=[3, 4], size=50), seed=1),
        "test": knights.build(spec(people=[3, 4], size=70), seed=1),
    }
    forms = {name: [brute_canonical(record.problem) for record in records] for name, records in sets.items()}
    for one, other in itertools.combinations(forms, 2):
        assert not set(forms[one]) & set(forms[other]), (one, other)
    for name in ("rl", "dev", "test"):
        assert len(set(forms[name])) == len(forms[name])
        assert len({record.id for record in sets[name]}) == len(sets[name])
    assert set(forms["sft"]) != set()


def test_too_small_a_space_is_one_line():
    with pytest.raises(UserError, match=r"people: 2, split: test: only \d+ different puzzles found, 40 asked for"):
        knights.build(spec(people=[2]), seed=1)


@pytest.mark.parametrize("kinds", [{"literal": 1.0}, {"literal": 1.0, "not": 2.0}])
def test_a_grammar_without_puzzles_is_one_line_too(kinds):
    """Swapping all roles keeps what literals say, so they never single out a solution."""
    with pytest.raises(UserError, match="people: 4, split: test: only 0 different puzzles found, 40 asked for"):
        knights.build(spec(statements=kinds), seed=1)


def test_a_number_of_people_named_twice_counts_twice():
    records = knights.build(spec(people=[4, 5, 4], size=30), seed=1)
    assert [r.extra["people"] for r in records[:4]] == [4, 5, 4, 4]
    assert len({r.id for r in records}) == 30


def test_answers_are_balanced():
    records = knights.build(spec(people=[4, 5], size=800), seed=3)
    for n in (4, 5):
        answers = [r.answer for r in records if r.extra["people"] == n]
        commonest = collections.Counter(answers).most_common(1)[0][1]
        assert commonest / len(answers) < 2.5 * 2**-n  # no constant answer is worth giving
        for person in range(n):
            share = sum(answer[2 * person + 1] == "K" for answer in answers) / len(answers)
            assert 0.35 < share < 0.65


def test_the_same_seed_gives_the_same_bytes_and_another_another(tmp_path):
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        write_records(tmp_path / name, knights.build(sft(size=50), seed))
    contents = [(tmp_path / name).read_bytes() for name in "abc"]
    assert contents[0] == contents[1] != contents[2]
    assert read_records(tmp_path / "a") == knights.build(sft(size=50), 1)


@pytest.mark.parametrize("people", range(2, 9))
@pytest.mark.parametrize("kinds", [LAPTOP, ALL_KINDS], ids=["laptop", "all"])
def test_careful_derivations_are_right_and_guesses_are_not(people, kinds):
    records = knights.build(sft(people=[people], size=150, statements=kinds), seed=4)
    verdicts = collections.defaultdict(collections.Counter)
    for record in records:
        verdict = knights.score(record, knights.target(record))
        verdicts[record.extra["mode"]][verdict["strict"]] += 1
        assert verdict["answer"] == ("correct" if record.extra["trace"].endswith("!" + record.answer) else "wrong")
    assert set(verdicts["careful"]) == {"correct"}
    assert set(verdicts["direct"]) == {"wrong"}
    assert verdicts["lazy"]["correct"] > 0


# a says b is a knave, b says c is a knight, c says a and b are ... : one solution, checked by `solve` below
PUZZLE = Record("p", "aBN;bCK;cAN&BN;?", "AKBNCN")

DERIVATIONS = {
    "SAKaBNbCN!AKBNCN": ("correct", "correct"),
    " S A K a B N\nb C N ! A K B N C N ": ("correct", "correct"),  # white space means nothing
    "SANaBKbCKcXRAKaBNbCN!AKBNCN": ("correct", "correct"),
    "SBKbCKcXRBNaAKbCN!AKBNCN": ("correct", "correct"),
    "SAKaBNaBNbCN!AKBNCN": ("correct", "correct"),  # restating what is held is harmless
    "!AKBNCN": ("wrong", "correct"),  # nothing derived
    "SAKaBN!AKBNCN": ("wrong", "correct"),  # incomplete
    "SAKSBNSCN!AKBNCN": ("wrong", "correct"),  # supposes what follows, which would be guessing
    "SAKaBNSCN!AKBNCN": ("wrong", "correct"),
    "SAKaBKbCN!AKBNCN": ("wrong", "correct"),  # does not follow
    "SAKSAKaBNbCN!AKBNCN": ("wrong", "correct"),  # supposes what is held
    "SAKaBNbCN!ANBNCN": ("wrong", "wrong"),
    "SAKaBNbCNcX!AKBNCN": ("wrong", "correct"),  # no contradiction there
    "SANaBKbCKcX!AKBNCN": ("wrong", "correct"),  # ends in a contradiction
    "SANaBKbCKcXRBNaAK!AKBNCN": ("wrong", "correct"),  # reverses what was not supposed last
    "SANaBKbCKcXRANaBK!AKBNCN": ("wrong", "correct"),  # reverses to the same role
    "SANaBKbCKcXaBKRAKaBNbCN!AKBNCN": ("wrong", "correct"),  # goes on after a contradiction
    "SANRAKaBNbCN!AKBNCN": ("wrong", "correct"),  # reverses without a contradiction
    "SAKaBNbC!AKBNCN": ("unparseable", "correct"),
    "SAKfBNbCN!AKBNCN": ("unparseable", "correct"),  # nobody of that name
    "SAKaBNbCN": ("unparseable", "unparseable"),
    "SAKaBNbCN!AKBN": ("unparseable", "unparseable"),
    "SAKaBNbCN!AKCNBN": ("unparseable", "unparseable"),
    "SAKaBNbCN!AKBNCN!AKBNCN": ("unparseable", "unparseable"),
    "AKBNCN": ("unparseable", "unparseable"),
    "": ("unparseable", "unparseable"),
    "\x00\ud800 ¿?": ("unparseable", "unparseable"),
}


def test_the_puzzle_of_the_derivations():
    assert solve(PUZZLE.problem) == [PUZZLE.answer]


@pytest.mark.parametrize("text", DERIVATIONS)
def test_each_rule_of_the_strict_grade(text):
    assert tuple(knights.score(PUZZLE, text)[grade] for grade in ("strict", "answer")) == DERIVATIONS[text]


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(st.sampled_from(render.VOCABULARY), max_size=40).map("".join)))
def test_no_text_breaks_the_grader(text):
    assert set(knights.score(PUZZLE, text).values()) <= set(VERDICTS)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_strictly_correct_derivation_implies_the_right_answer(data):
    """Mutations of a valid derivation: where the strict grade holds, a brute-force reading finds the same answer."""
    words = list("SANaBKbCKcXRAKaBNbCN!AKBNCN")
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(words) - 1))
        words[at] = data.draw(st.sampled_from(render.VOCABULARY))
    verdict = knights.score(PUZZLE, "".join(words))
    if verdict["strict"] == "correct":
        assert verdict["answer"] == "correct"
        assert "".join(words).endswith("!" + PUZZLE.answer)


def test_chance_is_one_guess_among_all_answers():
    assert knights.chance(PUZZLE) == 1 / 8
    at_256 = [1 - (1 - knights.chance(Record("p", "", "AKBKCKDKEKFKGKHK"[: 2 * n]))) ** 256 for n in (5, 6, 7, 8)]
    assert [round(value, 2) for value in at_256] == [1.00, 0.98, 0.87, 0.63]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"split": "train"}, "split"),
        ({"people": [9]}, r"people\.0.*less than or equal to 8"),
        ({"statements": {"xor": 1.0}}, "statements"),
        ({"statements": {"and": 0.0}}, "at least one kind"),
        ({"statements": {"and": float("inf")}}, "statements.and: .*finite"),
        ({"traces": {"careful": 1.0}}, "traces: needed by split sft, and by no other"),
        ({"sizes": 4}, r"unknown key 'sizes' \(did you mean 'size'"),
    ],
)
def test_a_faulty_spec_is_one_line(changes, message):
    content = {**spec().model_dump(exclude_none=True), **changes}
    with pytest.raises(UserError, match=message):
        validate(Spec, content, "suite.yaml: datasets.x")
