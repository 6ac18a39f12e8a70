"""Train one method with one seed by reinforcement learning with verifiable rewards.

In: the suite's file, the base model and the RL data set. Out: ``checkpoints/{method}/seed{seed}`` and the step log. A
killed run that is started again goes on, and ends with the same bytes as one that was never killed. Where ``rl.processes`` is
more than 1, it starts as many by torchrun, which may also be called itself: ``torchrun --nproc-per-node N -m sage.train ...``.
``--profile`` says where the time goes, and trains nothing.
"""

import argparse
import sys

from sage.cli import entry


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m sage.train", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    parser.add_argument("--method", required=True, help="one of the suite's methods, e.g. grpo_branch")
    parser.add_argument("--seed", required=True, type=int, help="one of the suite's training seeds")
    parser.add_argument("--profile", action="store_true", help="write a trace and a table of three steps, no results")
    arguments = parser.parse_args()
    from sage.config import load_suite

    suite = load_suite(arguments.config)
    suite.objective(arguments.method)
    suite.check_seed(arguments.seed)
    if arguments.profile:
        from sage.train import profile

        print(profile.main(suite, arguments.method, arguments.seed))
        return
    from sage.train import ranks, rl

    if suite.rl.processes > 1 and not ranks.started():
        ranks.start(suite.rl.processes, sys.argv[1:])
    rl.main(suite, arguments.method, arguments.seed)


if __name__ == "__main__":
    entry(main)
