"""``python -m sage.tasks build``: make one data set of a suite.

In: the suite's file. Out: ``processed/{dataset}/records.jsonl`` and its manifest.
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
    arguments = parser.parse_args()
    build_dataset(arguments.config, arguments.dataset)


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


if __name__ == "__main__":
    entry(main)
