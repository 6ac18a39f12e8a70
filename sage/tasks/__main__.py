"""Make one data set of a suite, or check that a benchmark's gold answers are graded as right.

``build``: from the suite's file to ``processed/{dataset}/records.jsonl`` and its manifest. ``check``: every gold answer
against itself, in a box and in the answer tags.
"""

import argparse

from sage.cli import entry


def main() -> None:
    """Parse the command line and build."""
    parser = argparse.ArgumentParser(prog="python -m sage.tasks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="make one data set of a suite")
    build.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    build.add_argument("--dataset", required=True, help="a name under `datasets` in it")
    check = commands.add_parser("check", help="grade every gold answer of a benchmark against itself")
    check.add_argument("name", help="a benchmark: aime, amc23 or math500")
    check.add_argument(
        "--source", required=True, nargs="+", help="file, folder, https address or hub:owner/name@revision:split"
    )
    arguments = parser.parse_args()
    if arguments.command == "build":
        build_dataset(arguments.config, arguments.dataset)
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


def check_golds(name: str, sources: list[str]) -> None:
    """Print how many gold answers are right answers to themselves; exit status 1 where one is not."""
    from sage import tasks
    from sage.errors import UserError
    from sage.evaluate.grading import Grader
    from sage.strict import validate

    task = tasks.load(name)
    if not hasattr(task, "warm_up"):
        raise UserError(f"task '{name}' makes its own problems; name a benchmark: aime, amc23 or math500")
    levels = {"levels": [1, 2, 3, 4, 5]} if "levels" in task.Spec.model_fields else {}
    spec = validate(task.Spec, {"task": name, "sources": sources, "region": "tags_or_box", **levels}, name)
    records = task.build(spec, 0)
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


if __name__ == "__main__":
    entry(main)
