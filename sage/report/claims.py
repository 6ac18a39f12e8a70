"""Claims: differences between two methods, paired over seeds, and what they say of each.

In: ``workflow/config/claims.yaml`` and :class:`sage.report.read.Results`. Out: a row a claim, and
``findings.md``. A report evaluates the claims whose methods and k its suite has.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from sage import paths
from sage.errors import UserError, nearest
from sage.report import tables
from sage.report.read import Results
from sage.report.statistics import (
    CONFIDENCE,
    MOST_SEEDS,
    Difference,
    holm,
    over_problems,
    paired,
    seeds_needed_between,
)
from sage.strict import Strict, read_yaml, validate


class Claim(Strict):
    """``method`` against ``against`` at pass@``k``, and what is claimed of the difference.

    ``metric``: the grade; the one that the suite rewards where it is empty.
    """

    text: str
    method: str
    against: str
    metric: str = ""
    k: Annotated[int, Field(ge=1)]
    expect: Literal["higher", "lower", "equal"]


class ClaimsFile(Strict):
    """The content of the file; ``size`` is the difference for which the number of seeds that show it is given."""

    size: Annotated[float, Field(gt=0)]
    claims: list[Claim]


def load_claims() -> ClaimsFile:
    """Read the claims; a fault, or a method without a file, is a :class:`UserError`."""
    content = validate(ClaimsFile, read_yaml(paths.CLAIMS), str(paths.CLAIMS))
    known = sorted(file.stem for file in paths.METHODS.glob("*.yaml"))
    for number, claim in enumerate(content.claims):
        for key, name in (("method", claim.method), ("against", claim.against)):
            if name not in known:
                raise UserError(f"{paths.CLAIMS}: claims.{number}.{key}: unknown method '{name}'{nearest(name, known)}")
    return content


@dataclass(frozen=True)
class Finding:
    """A claim: means of both methods over benchmarks and the seeds that both have, the difference, what it says.

    ``parts``: the difference on each benchmark; ``p``: adjusted for all claims of the table; ``seeds``: bounds of the
    number of seeds that would show a difference of the file's size, None where there are fewer than two seeds.
    """

    claim: Claim
    value: float
    other: float
    difference: Difference
    parts: dict[str, Difference]
    p: float
    seeds: tuple[int, int] | None
    problems: tuple[float, float] | None  # bounds of the difference on other problems of the same kind

    @property
    def verdict(self) -> str:
        """What the difference says of the claim; a control cannot be shown to hold."""
        if self.difference.n < 2:
            return "too few seeds"
        if self.p > 1 - CONFIDENCE:
            return "inside the noise"
        return "holds" if self.claim.expect == ("higher" if self.difference.mean > 0 else "lower") else "contradicted"


@dataclass(frozen=True)
class Findings:
    """The table: its rows in the order of the file, and the difference for which seeds needed are given."""

    rows: list[Finding]
    size: float


def findings(results: Results) -> Findings:
    """Return a finding for each claim that the suite can have."""
    suite, content = results.suite, load_claims()
    methods, ks = set(suite.methods), suite.evaluate.ks
    possible = [c for c in content.claims if {c.method, c.against} <= methods and c.k in ks]
    rewarded = results.cells[0]["primary"]
    named = [claim.model_copy(update={"metric": claim.metric or rewarded}) for claim in possible]
    found = [_finding(results, claim, content.size) for claim in named]
    adjusted = holm([finding.p for finding in found])
    return Findings([replace(finding, p=p) for finding, p in zip(found, adjusted, strict=True)], content.size)


def _finding(results: Results, claim: Claim, size: float) -> Finding:
    """Return the finding of ``claim``; its p is not yet adjusted."""
    curves, benchmarks = results.curves, results.suite.benchmarks
    rows = curves[(curves["metric"] == claim.metric) & (curves["k"] == claim.k)]
    table = rows.pivot(index="seed", columns=["method", "benchmark"], values="value")
    columns = [(method, b) for method in (claim.method, claim.against) for b in benchmarks]
    # A seed counts where it has both methods on all benchmarks: the same problems on both sides.
    whole = table.reindex(columns=pd.MultiIndex.from_tuples(columns)).dropna()
    mine, others = (pd.DataFrame({b: whole[(m, b)] for b in benchmarks}) for m in (claim.method, claim.against))
    difference = paired(mine.mean(axis=1), others.mean(axis=1))
    parts = {benchmark: paired(mine[benchmark], others[benchmark]) for benchmark in benchmarks}
    n = difference.n
    seeds = seeds_needed_between(size, difference.std, n) if n > 1 else None
    bounds = over_problems(_by_problem(results, claim, list(whole.index))) if n else None
    problems = (float(bounds[0]), float(bounds[1])) if bounds else None
    value, other = (float(side.to_numpy().mean()) if n else math.nan for side in (mine, others))
    return Finding(claim, value, other, difference, parts, difference.p, seeds, problems)


def _by_problem(results: Results, claim: Claim, seeds: list[int]) -> list[np.ndarray]:
    """Return the differences of each benchmark's problems in pass@k, means over ``seeds``."""
    sides = [results.problems_at(method, claim.metric, claim.k, seeds) for method in (claim.method, claim.against)]
    joined = pd.concat([side.groupby(["benchmark", "problem"], sort=False).mean() for side in sides], axis=1).dropna()
    differences = joined.iloc[:, 0] - joined.iloc[:, 1]
    return [group.to_numpy() for _, group in differences.groupby("benchmark", sort=False)]


HEADINGS = [
    "Claim",
    "Verdict",
    "Method",
    "Against",
    "Values",
    "Difference [95 % interval]",
    "On other problems",
    "On each benchmark",
    "n",
    "p (Holm)",
    "Seeds needed",
]


def row(finding: Finding) -> list[str]:
    """Return the cells of a finding under :data:`HEADINGS`."""
    d, claim = finding.difference, finding.claim
    return [
        claim.text,
        finding.verdict,
        claim.method,
        claim.against,
        "–" if d.n == 0 else f"{finding.value:.3f}, {finding.other:.3f}",
        "–" if d.n == 0 else f"{d.mean:+.3f}" + ("" if d.n < 2 else f" [{d.low:+.3f}, {d.high:+.3f}]"),
        "–" if finding.problems is None else "[{:+.3f}, {:+.3f}]".format(*finding.problems),
        "–" if d.n == 0 else ", ".join(f"{part.mean:+.3f}" for part in finding.parts.values()),
        str(d.n),
        "–" if d.n < 2 else f"{finding.p:.2g}",
        "–" if finding.seeds is None else " to ".join(map(_count, finding.seeds)),
    ]


def _count(seeds: int) -> str:
    return str(seeds) if seeds < MOST_SEEDS else f"{MOST_SEEDS}+"


def explanation(results: Results, found: Findings) -> str:
    """Return how the verdicts are to be read."""
    return (
        f"A difference is the mean over {', '.join(results.suite.benchmarks)} and over training seeds, paired: the seeds of"
        " two methods share their streams of prompts and draws. Its interval is Student's, which takes differences as"
        " normal; it is about new seeds on these very problems. `On other problems` is about the policies that were"
        " trained on new problems of the same kind: a bootstrap over problems, paired and stratified by benchmark, which"
        " does not take the spread over seeds in. The two are not to be added up, and the verdict is the first one's."
        f" p is that of the paired t-test, adjusted by Holm's method for the {len(found.rows)} claims of the table."
        " `holds`: p is at most 0.05 and the difference has the claimed sign; `contradicted`: at most 0.05 and the other"
        " sign, or, for a control, any; `inside the noise`: p is larger, which says that so few seeds do not show a"
        f" difference, not that there is none. Seeds needed: to show a difference of {found.size:g} in four"
        " studies of five, as far as the spread over these seeds tells. Base has sampling seeds only."
    )


def long(found: Findings) -> pd.DataFrame:
    """Return a row a finding with its numbers in full: what the figure of the claims is drawn from."""
    names = ["method", "against", "metric", "k", "expect", "text"]
    columns = [*names, "verdict", "value", "other", "mean", "std", "low", "high", "n", "p_holm", "problems_low"]
    columns += ["problems_high", "seeds_low", "seeds_high"]
    rows = []
    for finding in found.rows:
        d, none = finding.difference, (None, None)
        row = [*(getattr(finding.claim, name) for name in names), finding.verdict, finding.value, finding.other]
        row += [d.mean, d.std, d.low, d.high, d.n, finding.p, *(finding.problems or none), *(finding.seeds or none)]
        rows.append(row)
    return pd.DataFrame(rows, columns=columns)


def markdown(results: Results, found: Findings) -> str:
    """Return ``findings.md``."""
    lines = [f"# {results.suite.title}: findings", "", explanation(results, found), ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(row(finding))} |" for finding in found.rows]
    counts = Counter(finding.verdict for finding in found.rows)
    total = "; ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    return "\n".join([*lines, "", f"In all: {total or 'no claim that this suite can test'}.", ""])


def numbers(found: Findings) -> dict[str, float | int | str | None]:
    """Return a name for every number: ``{method}-{against}.{metric}.pass@{k}.mean`` (``.low``, ``.high``, ``.p``, ...)."""
    named: dict[str, float | int | str | None] = {}
    for finding in found.rows:
        d, claim = finding.difference, finding.claim
        name = f"{claim.method}-{claim.against}.{claim.metric}.pass@{claim.k}"
        for key, value in (("mean", d.mean), ("low", d.low), ("high", d.high), ("p", finding.p)):
            named[f"{name}.{key}"] = None if math.isnan(value) else round(value, 6)
        named |= {f"{name}.n": d.n, f"{name}.verdict": finding.verdict}
    return named


def latex(results: Results, found: Findings) -> str:
    """Return the findings as LaTeX with booktabs."""
    kept = [0, 1, 5, 6, 8, 9]
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering\\footnotesize",
        f"\\caption{{{tables.escaped(results.suite.title)}: findings. {tables.escaped(explanation(results, found))}}}",
        "\\begin{tabular}{p{0.32\\linewidth}lllrr}",
        "\\toprule",
        " & ".join(tables.escaped(HEADINGS[i]) for i in kept) + " \\\\",
        "\\midrule",
    ]
    lines += [" & ".join(tables.escaped(row(f)[i]).replace("–", "--") for i in kept) + " \\\\" for f in found.rows]
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])
