"""Claims: differences between two methods, paired over seeds, and what they say of each.

In: ``workflow/config/claims.yaml`` and :class:`sage.report.read.Results`. Out: a row a claim, and
``findings.md``. A report evaluates the claims whose methods and k its suite has.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import pandas as pd
from pydantic import Field

from sage import paths
from sage.errors import UserError, nearest
from sage.report.read import Results
from sage.report.statistics import CONFIDENCE, MOST_SEEDS, Difference, holm, paired, seeds_needed_between
from sage.strict import Strict, read_yaml, validate


class Claim(Strict):
    """``method`` against ``against`` at pass@``k`` of the grade ``metric``, and what is claimed of the difference."""

    text: str
    method: str
    against: str
    metric: str
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

    @property
    def verdict(self) -> str:
        """What the difference says of the claim; a control cannot be shown to hold."""
        if self.difference.n < 2:
            return "too few seeds"
        if self.p > 1 - CONFIDENCE:
            return "inside the noise"
        return "holds" if self.claim.expect == ("higher" if self.difference.mean > 0 else "lower") else "contradicted"


def findings(results: Results) -> list[Finding]:
    """Return a finding for each claim that the suite can have, in the order of the file."""
    suite, curves, content = results.suite, results.curves, load_claims()
    found = []
    for claim in content.claims:
        if not {claim.method, claim.against} <= set(suite.methods) or claim.k not in suite.evaluate.ks:
            continue
        rows = curves[(curves["metric"] == claim.metric) & (curves["k"] == claim.k)]
        table = rows.pivot(index="seed", columns=["method", "benchmark"], values="value")
        columns = [(method, b) for method in (claim.method, claim.against) for b in suite.benchmarks]
        # A seed counts where it has both methods on all benchmarks: the same problems on both sides.
        whole = table.reindex(columns=pd.MultiIndex.from_tuples(columns)).dropna()
        mine, others = (
            pd.DataFrame({b: whole[(method, b)] for b in suite.benchmarks}) for method in (claim.method, claim.against)
        )
        difference = paired(mine.mean(axis=1), others.mean(axis=1))
        parts = {benchmark: paired(mine[benchmark], others[benchmark]) for benchmark in suite.benchmarks}
        n = difference.n
        seeds = seeds_needed_between(content.size, difference.std, n) if n > 1 else None
        value, other = (float(side.to_numpy().mean()) if n else math.nan for side in (mine, others))
        found.append(Finding(claim, value, other, difference, parts, difference.p, seeds))
    adjusted = holm([finding.p for finding in found])
    return [replace(finding, p=p) for finding, p in zip(found, adjusted, strict=True)]


HEADINGS = [
    "Claim",
    "Verdict",
    "Method",
    "Against",
    "Values",
    "Difference [95 % interval]",
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
        "–" if d.n == 0 else ", ".join(f"{part.mean:+.3f}" for part in finding.parts.values()),
        str(d.n),
        "–" if d.n < 2 else f"{finding.p:.2g}",
        "–" if finding.seeds is None else " to ".join(map(_count, finding.seeds)),
    ]


def _count(seeds: int) -> str:
    return str(seeds) if seeds < MOST_SEEDS else f"{MOST_SEEDS}+"


def explanation(results: Results, found: list[Finding]) -> str:
    """Return how the verdicts are to be read."""
    return (
        f"A difference is the mean over {', '.join(results.suite.benchmarks)} and over training seeds, paired: the seeds of"
        " two methods share their streams of prompts and draws. Its interval is Student's, which takes differences as"
        f" normal. p is that of the paired t-test, adjusted by Holm's method for the {len(found)} claims of the table."
        " `holds`: p is at most 0.05 and the difference has the claimed sign; `contradicted`: at most 0.05 and the other"
        " sign, or, for a control, any; `inside the noise`: p is larger, which says that so few seeds do not show a"
        f" difference, not that there is none. Seeds needed: to show a difference of {load_claims().size:g} in four"
        " studies of five, as far as the spread over these seeds tells. Base has sampling seeds only."
    )


def markdown(results: Results, found: list[Finding]) -> str:
    """Return ``findings.md``."""
    lines = [f"# {results.suite.title}: findings", "", explanation(results, found), ""]
    lines += [f"| {' | '.join(HEADINGS)} |", f"|{' --- |' * len(HEADINGS)}"]
    lines += [f"| {' | '.join(row(finding))} |" for finding in found]
    counts = Counter(finding.verdict for finding in found)
    total = "; ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    return "\n".join([*lines, "", f"In all: {total or 'no claim that this suite can test'}.", ""])
