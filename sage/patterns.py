"""Find patterns of reasoning in kept completions, by plain expressions that anybody can read and dispute.

In: the kept completions of (method, seed). Out: ``metrics/{method}/seed{seed}/patterns.json``, the share of completions of
each benchmark that show a pattern. The names are those of the paper, which does not publish how it counts; the definitions
are ours, so the numbers are not to be put beside the paper's.
"""

import argparse
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sage.cli import entry

if TYPE_CHECKING:
    import pandas as pd

    from sage.config import Suite

SCHEMA = 1


@dataclass(frozen=True)
class Pattern:
    """A pattern: its definition in words, and the expression that finds it."""

    definition: str
    expression: re.Pattern

    def __call__(self, text: str) -> bool:
        """Return whether ``text`` shows the pattern."""
        return self.expression.search(text) is not None


def _prose(definition: str, expression: str) -> Pattern:
    return Pattern(definition, re.compile(expression, re.IGNORECASE | re.DOTALL | re.VERBOSE))


# Answers in English with formulas.
PROSE = {
    "constraint set-up": _prose(
        "an unknown is introduced (let, denote, define, represent, call, set; `... be the number of`), and a relation sign"
        " (=, <, >, \\le, \\ge, \\equiv) or `equation`, `constraint`, `condition` follows within 300 characters",
        r"""(\b(let|denote|define|represents?|call)\b | \bset\b\s+\$?\w\b | \bbe\ the\ (number|length|area|side|value)\b)
        .{1,300}? (?: [=<>≤≥≡] | \\(le|ge|leq|geq|equiv)\b | \b(equations?|constraints?|conditions?)\b )""",
    ),
    "structural reasoning": _prose(
        "the problem is taken apart by its structure: cases (`case 1`, `consider the cases`), symmetry, parity, an invariant,"
        " induction, the pigeonhole principle, a bijection, a recurrence, or `without loss of generality`",
        r"""\bcases?\s*(\d|i+\b|[ab]\b|:) | \b(two|three|four|several|following|these|possible)\ cases\b | \bcasework\b
        | \bsymmetr(y|ic|ical)\b | \bparity\b | \binvariants?\b | \b(by|use|using|mathematical)\ induction\b
        | \bpigeonhole\b | \bbiject(ion|ive)\b | \brecurr?(ence|sion|sive)\b | \bwithout\ loss\ of\ generality\b | \bwlog\b""",
    ),
    "proof by contradiction": _prose(
        "`by contradiction`, or something is supposed (suppose, assume, if ... were) and within 600 characters a contradiction"
        " is stated (contradicts, contradiction, impossible, absurd)",
        r"""\bby\ (way\ of\ )?contradiction\b
        | \b(suppose|assume|assuming|supposing|if\b.{1,60}?\bwere)\b .{1,600}? \b(contradict\w*|impossible|absurd)\b""",
    ),
}
# Derivations of the task `knights` (sage/tasks/knights/render.py), where each step says what it is.
KNIGHTS = {
    "constraint set-up": Pattern(
        "a step reads what somebody's statement gives (`aBN`) before the answer", re.compile(r"^[^!]*[a-h][A-H][KN]")
    ),
    "structural reasoning": Pattern(
        "a case is opened: a role is supposed (`SAN`) before the answer", re.compile(r"^[^!]*S[A-H][KN]")
    ),
    "proof by contradiction": Pattern(
        "a contradiction is stated (`aX`), and the role that led to it is reversed (`RAK`)",
        re.compile(r"^[^!]*[a-h]X[^!]*R[A-H][KN]"),
    ),
}


def of_task(task: str) -> dict[str, Pattern]:
    """Return the patterns that are looked for in answers of ``task``."""
    return KNIGHTS if task == "knights" else PROSE


def shares(texts: "pd.Series", patterns: dict[str, Pattern]) -> dict[str, float]:
    """Return the share of ``texts`` that shows each pattern; equal texts are looked at once."""
    counts = texts.value_counts()
    total = int(counts.sum())
    return {
        name: round(sum(int(count) for text, count in counts.items() if pattern(str(text))) / total, 6)
        for name, pattern in patterns.items()
    }


def find(suite: "Suite", method: str, seed: int) -> None:
    """Write the shares of every benchmark of (``method``, ``seed``)."""
    import pandas as pd

    from sage import manifest, paths
    from sage.evaluate.sample import FILE

    found = dict[str, Any]()
    for benchmark in suite.benchmarks:
        folder = paths.samples(suite.name, method, seed, benchmark)
        content = manifest.require(folder)
        texts = pd.read_parquet(folder / FILE, columns=["text"])["text"]
        patterns = of_task(suite.benchmark(benchmark).task)
        found[benchmark] = {
            "samples": manifest.payload_hash(content),
            "n": len(texts),
            "shares": shares(texts, patterns),
        }
    identity = {"schema": SCHEMA, "suite": suite.name, "method": method, "seed": seed}
    manifest.write_json(paths.patterns(suite.name, method, seed), {**identity, "benchmarks": found})


def main() -> None:
    """Parse the command line and look for patterns."""
    parser = argparse.ArgumentParser(prog="python -m sage.patterns", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    parser.add_argument("--method", required=True, help="one of the suite's methods, e.g. grpo_branch")
    parser.add_argument("--seed", required=True, type=int, help="one of the suite's seeds")
    arguments = parser.parse_args()
    from sage.config import load_suite

    suite = load_suite(arguments.config)
    suite.method(arguments.method)
    find(suite, arguments.method, suite.check_seed(arguments.seed))


if __name__ == "__main__":
    entry(main)
