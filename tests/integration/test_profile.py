"""`python -m sage.train --profile` writes a trace and a table, and changes nothing that a training run made or will make."""

import gzip
import json

from tiny_project import RL, SFT, finish, make_project


def test_a_trace_and_a_table_and_nothing_else(tmp_path):
    root = make_project(tmp_path, {})
    finish(root, SFT)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    finish(root, [*RL, "--profile"])
    folder = root / "logs/tiny/profile/grpo_branch/seed1"
    after = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before
    assert {path.name for path in after.keys() - before.keys() if path.parent == folder} == {
        "trace.json.gz",
        "table.txt",
    }
    assert all(path.parent == folder or "__pycache__" in path.parts for path in after.keys() - before.keys())
    table = (folder / "table.txt").read_text()
    for word in ("rollout", "grade", "anchor", "update", "aten::mm"):
        assert word in table
    trace = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))
    assert {"phase rollout", "phase update"} <= {event.get("name") for event in trace["traceEvents"]}
