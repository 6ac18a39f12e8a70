"""The suites that were chosen, and the helpers of the rules.

In: the configuration files. Out: ``SUITES``, and for the rules their wildcards, inputs, parameters and targets.
"""

import json
import os
import re
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(workflow.basedir))

from sage import grid, paths
from sage.config import Suite, load_suite
from sage.errors import UserError
from sage.manifest import NAME as MANIFEST

# `.venv/bin/snakemake` finds its own Python without being activated.
os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
# The SLURM profile names them; one that is not set is empty.
for variable in ("SAGE_ACCOUNT", "SAGE_PARTITION", "SAGE_GPU"):
    os.environ.setdefault(variable, "")


def load_suites() -> dict[str, Suite]:
    """Return the suites of the configuration files by name; :class:`UserError` for a fault in one of them."""
    if workflow.config_settings.config:
        raise UserError(
            "--config: the stages read files only; change the suite's file, or a copy given by --configfile"
        )
    suites = {}
    for file in workflow.configfiles:
        suite = load_suite(os.path.relpath(file))
        if suite.name in suites:
            raise UserError(f"{suite.path}: suite '{suite.name}' stands in {suites[suite.name].path} too; rename one")
        suites[suite.name] = suite
    return suites


try:
    SUITES = load_suites()
except UserError as error:
    sys.exit(f"error: {error}")


def processed(suite: str, dataset: str) -> Path:
    """Return the manifest of a processed data set."""
    return paths.processed(suite, dataset) / MANIFEST


def pretrained(suite: str) -> list[Path]:
    """Return the manifest of the pretrained model that fine-tuning starts from, where there is one."""
    return [paths.pretrained(suite) / MANIFEST] if SUITES[suite].pretrained else []


def targets(suite: Suite) -> list[Path]:
    """Return what `all` asks for: every file of the grid, so that a hole is seen, and what stands on the whole grid."""
    page, tracked = paths.report(suite.name) / "index.html", paths.tracked(suite.name)
    return [*grid.manifests(suite), *grid.metrics(suite), *grid.counts(suite), page, tracked]


def any_of(names: list[str]) -> str:
    """Return the pattern of a wildcard that takes one of ``names``."""
    return "|".join(map(re.escape, dict.fromkeys(names))) or "(?!)"


def every(list_names) -> list[str]:
    """Return the names that ``list_names`` finds in the suites, all together."""
    return [name for suite in SUITES.values() for name in list_names(suite)]


def stage_key(stage: str):
    """Return the parameter that stands for exactly the configuration that the results of ``stage`` depend on."""

    def key(wildcards) -> str:
        names = {name: wildcards[name] for name in ("dataset", "method") if name in wildcards.keys()}
        return SUITES[wildcards.suite].stage_key(stage, **names)

    return key


def config_file(wildcards, output) -> str:
    """Return the suite's file. Snakemake compares no parameter that takes ``output``: where the file lies is no result."""
    return str(SUITES[wildcards.suite].path)


def launch_options(wildcards, resources) -> str:
    """Return where a training runs, with what. Snakemake compares no parameter that takes ``resources``."""
    asked = {name: resources[name] for name in resources.keys() if not name.startswith("_") and name != "tmpdir"}
    return f"--launcher {asked.pop('launcher')} --resources {shlex.quote(json.dumps(asked))}"


# A part has shards of all benchmarks. It leaves them in the work folder, and a mark that is removed once they are merged.
PARTS = "work/{suite}/parts/{method}/seed{seed}/part{part}"


def sampling_parts(wildcards) -> list[str]:
    """Return the marks of the parts of a policy's sampling; a cell that is a job of its own needs none."""
    return [PARTS.format(part=part, **wildcards) for part in range(grid.parts(SUITES[wildcards.suite]))]


wildcard_constraints:
    suite=any_of(SUITES),
    method=any_of(every(lambda suite: suite.methods)),
    seed=any_of(every(lambda suite: map(str, suite.seeds))),
    dataset=any_of(every(lambda suite: suite.datasets)),
    benchmark=any_of(every(lambda suite: suite.benchmarks)),
    part=r"\d+",
