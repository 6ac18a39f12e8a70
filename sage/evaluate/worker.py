"""A grading process: reads a job a line, writes its verdicts a line, ends with its input.

In: the task's name; JSON lines with a record and an answer region. Out: ``{}`` when it is ready, then a JSON line for each.
Its memory is bounded, so that an answer that grows without end harms nobody else.
"""

import json
import os
import resource
import sys

MEMORY = 4 << 30  # bytes of address space


def main() -> None:
    """Serve until the input ends."""
    from sage import tasks
    from sage.evaluate.grading import score

    # What graders and their libraries print must not stand between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    task = tasks.load(sys.argv[1])
    if hasattr(task, "warm_up"):
        task.warm_up()
    print("{}", file=answers)
    for line in sys.stdin:
        job = json.loads(line)
        print(json.dumps(score(task, tasks.Record(**job["record"]), job["region"])), file=answers)


if __name__ == "__main__":
    main()
