"""Make the data sets of a suite, fetch and pin their sources, or check that gold answers are graded as right.

``build``: from the suite's file to ``processed/{dataset}/records.jsonl`` and its manifest. ``prefetch``: every remote source
of a suite, so that machines without a network can build. ``pin``: the digests of a training set. ``check``: every gold answer
against itself, in a box and in the answer tags.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.cli import entry

if TYPE_CHECKING:
    from sage.tasks import Record


def main() -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(prog="python -m sage.tasks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make one data set of a suite")
    prefetch = commands.add_parser(
        "prefetch", help="fetch every remote source of a suite, for machines without a network"
    )
    pin = commands.add_parser("pin", help="write the digests of a training set, to be looked at and committed")
    for command in (build, prefetch, pin):
        command.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    for command in (build, pin):
        command.add_argument("--dataset", required=True, help="a name under `datasets` in it")
    check = commands.add_parser("check", help="grade every gold answer of a task against itself")
    check.add_argument("name", help="aime, amc23, math500 or dapo_math")
    check.add_argument(
        "--source", required=True, nargs="+", help="file, folder, https address or hub:owner/name@revision:split"
    )
    arguments = parser.parse_args()
    if arguments.command == "build":
        build_dataset(arguments.config, arguments.dataset)
    elif arguments.command == "prefetch":
        prefetch_sources(arguments.config)
    elif arguments.command == "pin":
        pin_dataset(arguments.config, arguments.dataset)
    else:
        check_golds(arguments.name, arguments.source)


def build_dataset(config: str, name: str) -> None:
    """Make the data set ``name`` of the suite in the file ``config``."""
    from sage import manifest, paths, tasks
    from sage.config import load_suite

    suite = load_suite(config)
    spec = suite.dataset(name)
    final = paths.processed(suite.name, name)
    key = suite.stage_key("data", dataset=name)
    work = manifest.work_folder(final, key)
    records = tasks.load(spec.task).build(spec, suite.data_seed)
    tasks.write_records(work / "records.jsonl", records)
    content = {"stage": "data", "suite": suite.name, "dataset": name, "key": key, "records": len(records)}
    manifest.publish(work, final, ["records.jsonl"], content, packages=["numpy"])
    print(f"{final}: {len(records)} records")


def prefetch_sources(config: str) -> None:
    """Fetch every remote source of the suite in the file ``config`` that is not here yet."""
    from sage.config import load_suite
    from sage.tasks._math import source

    suite = load_suite(config)
    origins = [name for dataset in suite.datasets for name in getattr(suite.dataset(dataset), "sources", [])]
    remote = [name for name in dict.fromkeys(origins) if source.is_remote(name)]
    for name in remote:
        print(f"{name}: fetching", flush=True)
        print(f"{name}: {source.prefetch(name)}")
    print(f"{suite.name}: {len(remote)} remote sources, all here")


def pin_dataset(config: str, name: str) -> None:
    """Write the pins of the training set ``name`` of the suite in the file ``config`` from its sources."""
    from sage import tasks
    from sage.config import load_suite
    from sage.errors import UserError
    from sage.tasks._math.training import write_pins

    suite = load_suite(config)
    spec = suite.dataset(name)
    if not hasattr(spec, "pins"):
        raise UserError(f"{suite.path}: {suite.name}.datasets.{name}: task '{spec.task}' needs no pins; build it")
    records = tasks.load(spec.task).read(spec)
    write_pins(records, Path(spec.pins))
    print(f"{spec.pins}: {len(records)} records, the first of them: {records[0].problem[:200]} = {records[0].answer}")


def check_golds(name: str, sources: list[str]) -> None:
    """Print how many gold answers are right answers to themselves; exit status 1 where one is not."""
    from sage import tasks
    from sage.evaluate.grading import Grader

    task = tasks.load(name)
    records = _golds(name, task, sources)
    forms = {"in the answer tags": "<SOLUTION>{}</SOLUTION>", "in a box": "\\boxed{{{}}}"}
    wrong = []
    with Grader(task) as grader:
        for form, template in forms.items():
            verdicts = grader.grade(records, [template.format(record.answer) for record in records])
            right = [verdict["answer"] == "correct" for verdict in verdicts]
            print(f"{name}: {sum(right)}/{len(records)} {form}")
            wrong += [record for record, ok in zip(records, right, strict=True) if not ok]
    for record in wrong:
        print(f"not right: {record.id}: {record.answer}")
    if wrong:
        raise SystemExit(1)


def _golds(name: str, task: Any, sources: list[str]) -> list["Record"]:
    """Return the records of a task as the sources have them; those of a benchmark are checked against its pins."""
    from sage.errors import UserError
    from sage.strict import validate

    if not hasattr(task, "warm_up"):
        raise UserError(f"task '{name}' has no gold answers of others; name aime, amc23, math500 or dapo_math")
    needed = {"levels": [1, 2, 3, 4, 5], "pins": ""}
    more = {key: value for key, value in needed.items() if key in task.Spec.model_fields}
    spec = validate(task.Spec, {"task": name, "sources": sources, "region": "tags_or_box", **more}, name)
    return task.read(spec) if "pins" in more else task.build(spec, 0)


if __name__ == "__main__":
    entry(main)
