"""The English rendering: there and back, against the public notation read by an evaluator of its own."""

import ast
import itertools

import pytest

from sage.errors import UserError
from sage.tasks import Record, knights
from sage.tasks.knights import Spec, english

ALL_KINDS = dict.fromkeys(["literal", "not", "and", "or", "implies", "iff"], 1.0)
FIELDS = [
    *("quiz", "names", "knight_knave", "solution", "solution_text", "solution_text_format"),
    *("cot_head", "cot_repeat_steps", "cot_foot", "statements", "index"),
]
# Statements of a published record of five people; one is a tautology about one person.
PUBLISHED = {
    "statements": "(('or', ('telling-truth', 1), ('lying', 1)), ('lying', 2), ('or', ('lying', 0), ('lying', 4)),"
    " ('or', ('telling-truth', 2), ('telling-truth', 4)), ('lying', 3))",
    "names": ["Ella", "Zoey", "Scarlett", "Henry", "Amelia"],
    "solution": [True, False, True, True, False],
    "index": 1000,
}


@pytest.fixture(scope="module")
def records() -> list[Record]:
    kinds = {"task": "knights", "split": "test", "people": list(range(3, 9)), "statements": ALL_KINDS}
    return knights.build(Spec(**kinds, size=180), seed=1)


def holds(statement, roles) -> bool:
    """Return the truth of a statement in the public notation."""
    kind, *parts = statement
    if kind in ("telling-truth", "lying"):
        return roles[parts[0]] == (kind == "telling-truth")
    values = [holds(part, roles) for part in parts]
    return {
        "not": not values[0],
        "and": all(values),
        "or": any(values),
        "->": not values[0] or values[-1],
        "<=>": values[0] == values[-1],
    }[kind]


def test_a_public_row_has_the_public_fields_and_the_same_only_solution(records):
    for record in records:
        row = knights.to_public(record)
        assert list(row) == FIELDS
        statements = ast.literal_eval(row["statements"])
        found = [
            list(roles)
            for roles in itertools.product([True, False], repeat=len(statements))
            if all(holds(s, roles) == role for s, role in zip(statements, roles, strict=True))
        ]
        assert found == [row["solution"]]


def test_there_and_back(records):
    for i, record in enumerate(records):
        row = knights.to_public(record, index=i)
        assert knights.from_public(row) == record
        assert knights.to_public(knights.from_public(row), index=i) == row  # the same words again


def test_names_can_be_given_and_else_are_drawn_without_repetition(records):
    for record in records:
        n = record.extra["people"]
        names = knights.to_public(record)["names"]
        assert len(set(names)) == n
        given = [f"Person{i}" for i in range(n)]
        row = knights.to_public(record, names=given)
        assert row["names"] == given
        assert all(f"Person{i} is a" in row["solution_text"] for i in range(n))
        assert not set(names) & set(row["quiz"].replace(".", " ").replace(",", " ").split())


def test_the_words_of_a_puzzle():
    record = Record("x", "aBN;bAK&CK;cAN>BK;?", "?", {})
    names = ["Ann", "Bob", "Cy"]
    says = [english.claim(s, names) for s in english.parse_puzzle(record.problem)]
    assert says == ["Bob is a knave", "Ann is a knight and Cy is a knight", "if Ann is a knave then Bob is a knight"]
    rest = [english.claim(s, names) for s in english.parse_puzzle("a~BN;bAK|CN;cAN=BK;?")]
    assert rest == [
        "Bob is not a knave",
        "Ann is a knight or Cy is a knave",
        "Ann is a knave if and only if Bob is a knight",
    ]


def test_each_step_in_words_is_one_of_three_and_the_last_assumptions_are_the_solution(records):
    for record in records:
        row = knights.to_public(record)
        held: dict[str, str] = {}
        for step in row["cot_repeat_steps"]:
            words = step.split()
            if step.startswith("Suppose"):
                held[words[1]] = words[4].rstrip(".")
            elif step.startswith("No role is left"):
                kept = list(held)[: list(held).index(words[-1].rstrip("."))]
                held = {name: held[name] for name in kept}
            else:
                assert " cannot be a kn" in step
        wanted = {name: "knight" if role else "knave" for name, role in zip(row["names"], row["solution"], strict=True)}
        assert held == wanted


def test_a_published_record_loads():
    record = knights.from_public(PUBLISHED)
    assert record.problem == "aBK|BN;bCN;cAN|EN;dCK|EK;eDN;?"
    assert record.answer == "AKBNCKDKEN"
    assert record.id == knights.from_public({**PUBLISHED, "index": 3}).id
    row = knights.to_public(record, names=PUBLISHED["names"], index=1000)
    assert ast.literal_eval(row["statements"]) == ast.literal_eval(PUBLISHED["statements"])
    assert {key: row[key] for key in ("names", "solution", "index")} == {
        key: PUBLISHED[key] for key in ("names", "solution", "index")
    }
    assert row["solution_text"] == (
        "Ella is a knight, Zoey is a knave, Scarlett is a knight, Henry is a knight, and Amelia is a knave."
    )
    assert row["solution_text_format"].splitlines()[1] == "(2) Zoey is a knave"


def test_lists_numbers_as_text_and_many_operands_load_too():
    statements = [
        ["and", ["lying", "0"], ["not", ["telling-truth", 1]], ["telling-truth", 2]],
        ["lying", 0],
        ["lying", "0"],
    ]
    record = knights.from_public({"statements": statements, "solution": [False, True, True]})
    assert record.problem == "aAN&~BK&CK;bAN;cAN;?"
    assert "is a knave and" in knights.to_public(record)["quiz"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"solution": [True] * 5}, "record 1000: solution: not the only solution"),
        ({"solution": [True]}, "solution: not the only solution"),
        ({"statements": "(('lying', 1)"}, "record 1000: statements: "),
        ({"statements": "(('lying', 1),)"}, "not a sequence of 2 to 8 statements"),
        ({"statements": "(('lying', 1), ('lying', 2))"}, r"\('lying', 2\) is not about one of 2 people"),
        ({"statements": "(('lying', 1), ('xor', ('lying', 0), ('lying', 1)))"}, "is no statement"),
        ({"statements": "(('lying', 1), ('->', ('lying', 0)))"}, "has 1 operands"),
        ({"statements": "(('lying', 1), ('not', ('and', ('lying', 0), ('lying', 1))))"}, "too deep"),
        ({"statements": "(('lying', 1), ('or', ('and', ('lying', 0), ('lying', 1)), ('lying', 1)))"}, "too deep"),
        ({"statements": "(3, 4)"}, "3 is no statement"),
        ({"statements": "__import__('os').getcwd()"}, "record 1000: statements: "),
        ({"statements": None}, "not a sequence"),
        ({"solution": None}, "record 1000: solution: "),
    ],
)
def test_a_faulty_public_record_is_one_line(changes, message):
    with pytest.raises(UserError, match=message) as raised:
        knights.from_public({**PUBLISHED, **changes})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("field", ["statements", "solution"])
def test_a_missing_field_is_named(field):
    with pytest.raises(UserError, match=f"record 1000: {field}: missing"):
        knights.from_public({key: value for key, value in PUBLISHED.items() if key != field})
