"""`snakemake --profile slurm` on a real SLURM: from nothing to tables, parts of it again, and after a kill."""

import os
import re
import signal
import subprocess
import time

from cluster import accounted, queued, run, wait_until
from project_tree import jobs

SUITE = "workflow/config/grid.yaml"
LONG = "workflow/config/long.yaml"


def snakemake(project, *arguments, suite=SUITE, status=0):
    command = ["snakemake", "--profile", "slurm", *arguments, "--configfile", suite]
    done = subprocess.run(
        command, cwd=project.root, env=project.environment(), capture_output=True, text=True, timeout=900
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


def trainings(prefix):
    """Return name -> (job ids, states, allocated resources) of the jobs whose names start with ``prefix``."""
    found = {}
    for line in run("sacct", "-n", "-X", "-P", "-o", "JobName,JobID,State,AllocTRES").stdout.splitlines():
        name, *rest = line.split("|")
        if name.startswith(prefix):
            found.setdefault(name, []).append(rest)
    return found


def test_the_grid_runs_from_nothing_to_tables(cluster, project):
    done = snakemake(project, "all")
    found = trainings("grid-")
    assert set(found) == {"grid-base", *(f"grid-{m}-s{s}" for m in ("grpo", "grpo_branch") for s in (1, 2))}
    for [(_, state, resources)] in found.values():
        assert state == "COMPLETED"
        assert "gres/gpu=1" in resources
    assert len(list((project.root / "data/grid/metrics").glob("*/seed*/knights_n?.json"))) == 3 * 2 * 2
    assert (project.root / "reports/grid/tables/main.csv").is_file()
    assert jobs(done)["sample_part"] == 3 * 2 * 2
    # The launchers wait beside each other: all trainings are submitted before the first one ends.
    said = [line for line in (done.stdout + done.stderr).splitlines() if re.match(r"grpo\w* seed \d: ", line)]
    first_end = next(i for i, line in enumerate(said) if line.endswith(": done"))
    assert sum("submitted job" in line for line in said[:first_end]) == 4
    assert not jobs(snakemake(project, "-n", "all"))
    assert not jobs(project.snakemake("-n", "all", suites=[SUITE])), (
        "without the profile there would be something to do"
    )


def test_one_seed_and_one_benchmark_again(cluster, project):
    target = "data/grid/checkpoints/grpo/seed1/manifest.json"
    before = (project.root / target).read_bytes()
    assert jobs(snakemake(project, "-f", target)) == {"train_policy": 1}
    assert (project.root / target).read_bytes() == before
    assert len(trainings("grid-grpo-s1")["grid-grpo-s1"]) == 2
    target = "data/grid/samples/grpo/seed1/knights_n4/manifest.json"
    before = (project.root / target).read_bytes()
    assert jobs(snakemake(project, "-f", target)) == {"sample_benchmark": 1, "sample_part": 2}
    assert (project.root / target).read_bytes() == before
    assert not jobs(snakemake(project, "-n", "all"))


def test_the_next_snakemake_attaches_to_the_trainings_of_a_killed_one(cluster, project):
    targets = [f"data/long/checkpoints/grpo_nokl/seed{seed}/manifest.json" for seed in (1, 2)]
    command = ["snakemake", "--profile", "slurm", *targets, "--configfile", LONG]
    with subprocess.Popen(
        command, cwd=project.root, env=project.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        records = [project.root / f"logs/long/jobs/grpo_nokl/seed{seed}/job.json" for seed in (1, 2)]
        wait_until(lambda: all(record.is_file() for record in records), "two submissions", 300)
        wait_until(lambda: sum(queued(job) == "RUNNING" for job in ids("long-grpo_nokl")) == 2, "two running jobs")
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(3)
    assert not run("pgrep", "--full", "sage.cluster launch .*long.yaml").stdout, "a launcher has outlived its Snakemake"
    snakemake(project, "--unlock", suite=LONG)
    done = snakemake(project, *targets, suite=LONG)
    text = done.stdout + done.stderr
    assert text.count("attached to job") == 2
    assert "submitted job" not in text
    assert sorted(map(len, trainings("long-grpo_nokl-s").values())) == [1, 1]
    assert {accounted(job) for job in ids("long-grpo_nokl")} == {"COMPLETED"}


def ids(prefix):
    return [row[0] for rows in trainings(prefix).values() for row in rows]


def test_what_fails_for_good_is_told_and_the_rest_goes_on(cluster, project):
    profile = project.root / "workflow/profiles/slurm/config.yaml"
    text = profile.read_text()
    little = "mem_mb: \"60 if wildcards.seed == '4' else 4000\""
    head, policy = text.split("  train_policy:\n")
    profile.write_text(head + "  train_policy:\n" + policy.replace("mem_mb: 96000", little, 1))
    targets = [f"data/long/checkpoints/grpo_nokl/seed{seed}/manifest.json" for seed in (3, 4)]
    try:
        done = snakemake(project, *targets, suite=LONG, status=1)
    finally:
        profile.write_text(text)
    said = [line for line in (done.stdout + done.stderr).splitlines() if "out of memory" in line]
    assert any("error: grpo_nokl seed 4" in line and "mem_mb=60" in line and "_0_log.out" in line for line in said)
    assert (project.root / targets[0]).is_file()
    assert not (project.root / targets[1]).exists()
    assert len(trainings("long-grpo_nokl-s4")["long-grpo_nokl-s4"]) == 1, (
        "a training without enough memory was tried again"
    )
    status = project.run("python", "-m", "sage.cluster", "status", "--config", LONG).stdout
    assert re.search(r"grpo_nokl +1: done +2: done +3: done +4: failed +5: missing", status)
    assert re.search(r"grpo_nokl seed 4: failed, .*out of memory", status)
    assert "again: snakemake data/long/checkpoints/grpo_nokl/seed4/manifest.json" in status
