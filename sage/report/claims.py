"""Claims: differences between two methods, paired over seeds, and what they say of each.

In: ``workflow/config/claims.yaml`` and :class:`sage.report.read.Results`. Out: a row a claim and benchmark, and
``findings.md``. A report evaluates the claims whose methods and k its suite has.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field
from scipy import stats

from sage import paths
from sage.errors import UserError, nearest
from sage.report.read import Results
from sage.strict import Strict, read_yaml, validate

CONFIDENCE = 0.95


class Claim(Strict):
    """``method`` against ``against`` at pass@``k`` of the grade ``metric``, and what is claimed of the difference."""

    text: str
    method: str
    against: str
    metric: str
    k: Annotated[int, Field(ge=1)]
    expect: Literal["higher", "lower", "equal"]


class ReportFile(Strict):
    """The content of the file."""

    claims: list[Claim]


def load_claims() -> list[Claim]:
    """Read the claims; a fault, or a method without a file, is a :class:`UserError`."""
    claims = validate(ReportFile, read_yaml(paths.CLAIMS), str(paths.CLAIMS)).claims
    known = sorted(file.stem for file in paths.METHODS.glob("*.yaml"))
    for number, claim in enumerate(claims):
        for key, name in (("method", claim.method), ("against", claim.against)):
            if name not in known:
                raise UserError(f"{paths.CLAIMS}: claims.{number}.{key}: unknown method '{name}'{nearest(name, known)}")
    return claims


@dataclass(frozen=True)
class Difference:
    """A paired difference over n seeds: its mean and the bounds of its confidence interval (nan for one seed)."""

    mean: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Finding:
    """A claim on one benchmark: mean of each method over the seeds that both have, the difference, the verdict."""

    claim: Claim
    benchmark: str
    value: float
    other: float
    difference: Difference
    verdict: str


def paired(values: pd.Series, others: pd.Series) -> Difference:
    """Return the mean of ``values - others`` over the seeds in both indices, with Student's interval for it."""
    d = (values - others).dropna()
    n = len(d)
    if n < 2:
        return Difference(float(d.mean()) if n else math.nan, math.nan, math.nan, n)
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1) * d.std(ddof=1) / math.sqrt(n))
    return Difference(float(d.mean()), float(d.mean()) - half, float(d.mean()) + half, n)


def verdict(expect: str, d: Difference) -> str:
    """Return what ``d`` says of a claim: holds, inside the noise, contradicted; a control cannot be shown to hold."""
    if d.n < 2:
        return "too few seeds"
    if d.low <= 0 <= d.high:
        return "inside the noise"
    return "holds" if expect == ("higher" if d.mean > 0 else "lower") else "contradicted"


def findings(results: Results) -> list[Finding]:
    """Return a finding for each claim that the suite can have and each benchmark, in the order of the files."""
    suite, curves = results.suite, results.curves
    found = []
    for claim in load_claims():
        if not {claim.method, claim.against} <= set(suite.methods) or claim.k not in suite.evaluate.ks:
            continue
        rows = curves[(curves["metric"] == claim.metric) & (curves["k"] == claim.k)]
        for benchmark in suite.benchmarks:
            seeds = rows[rows["benchmark"] == benchmark].pivot(index="seed", columns="method", values="value")
            pair = seeds.reindex(columns=[claim.method, claim.against]).dropna()
            difference = paired(pair[claim.method], pair[claim.against])
            value, other = pair[claim.method].mean(), pair[claim.against].mean()
            found.append(Finding(claim, benchmark, value, other, difference, verdict(claim.expect, difference)))
    return found


HEADINGS = ["Claim", "Benchmark", "Method", "Against", "Values", "Difference [95 % interval]", "n", "Verdict"]


def row(finding: Finding) -> list[str]:
    """Return the cells of a finding under :data:`HEADINGS`."""
    d, claim = finding.difference, finding.claim
    interval = "" if math.isnan(d.low) else f" [{d.low:+.3f}, {d.high:+.3f}]"
    return [
        claim.text,
        finding.benchmark,
        claim.method,
        claim.against,
        "–" if d.n == 0 else f"{finding.value:.3f}, {finding.other:.3f}",
        "–" if d.n == 0 else f"{d.mean:+.3f}{interval}",
        str(d.n),
        finding.verdict,
    ]


def explanation(found: list[Finding]) -> str:
    """Return how the verdicts are to be read."""
    tested = sum(finding.difference.n > 1 for finding in found)
    by_chance = tested * (1 - CONFIDENCE)
    return (
        "A difference is paired over training seeds, which share their streams of prompts and draws; its interval is"
        f" Student's, {CONFIDENCE:.0%}, over n seeds. `holds`: the interval lies on the claimed side of 0;"
        " `contradicted`: on the other side, or, for a control, on either; `inside the noise`: 0 is in it, which says that"
        f" n seeds do not show a difference, not that there is none. Of {tested} intervals, about"
        f" {by_chance:.1f} would exclude 0 by chance alone. Base has sampling seeds only."
    )


def markdown(results: Results, found: list[Finding]) -> str:
    """Return ``findings.md``."""
    lines = [f"# {results.suite.title}: findings", "", explanation(found), ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(row(finding))} |" for finding in found]
    counts = pd.Series([finding.verdict for finding in found], dtype=str).value_counts()
    total = "; ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    return "\n".join([*lines, "", f"In all: {total or 'no claim that this suite can test'}.", ""])
