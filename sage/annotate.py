"""Annotate kept completions for the rollout browser: what policy, anchor and guide say of each token.

In: the checkpoint of (method, seed), the base model, and the kept completions of every benchmark. Out:
``reports/{suite}/rollouts/{method}/seed{seed}``: ``index.js``, and for each problem a file ``parts/{benchmark}/{number}.js``,
scripts that ``rollouts.html`` loads when they are asked for, because a page from the disk may not read other files. And
``metrics/{method}/seed{seed}/entropy.csv``: over the tokens of the first completions of each problem, how many have an entropy
in each bin, and the mean guide there.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.cli import entry

if TYPE_CHECKING:
    import pandas as pd

    from sage.config import Suite
    from sage.evaluate.cell import Cell
    from sage.tasks import Record

DIGITS = 4  # of log-probs, entropies and guides
BIN = 0.05  # width of a bin of entropies, nats


def main() -> None:
    """Parse the command line and annotate."""
    parser = argparse.ArgumentParser(prog="python -m sage.annotate", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    parser.add_argument("--method", required=True, help="one of the suite's methods, e.g. grpo_branch")
    parser.add_argument("--seed", required=True, type=int, help="one of the suite's seeds")
    arguments = parser.parse_args()
    from sage.config import load_suite

    suite = load_suite(arguments.config)
    suite.method(arguments.method)
    annotate(suite, arguments.method, suite.check_seed(arguments.seed))


def annotate(suite: "Suite", method: str, seed: int) -> None:
    """Write the index and the parts of (``method``, ``seed``)."""
    from sage import manifest, paths
    from sage.evaluate.cell import Cell
    from sage.evaluate.grading import Grader
    from sage.progress import bar

    final, annotator = paths.rollouts(suite.name, method, seed), Annotator(suite, method, seed)
    work, index, inputs = manifest.fresh_work(paths.work(final)), dict[str, Any](), dict[str, str]()
    signals = dict[str, list[dict[str, Any]]]()
    for cell in (Cell(suite, method, seed, benchmark) for benchmark in suite.benchmarks):
        inputs[cell.benchmark] = manifest.payload_hash(manifest.require(cell.samples))
        samples, rows = _samples(cell), list[dict[str, Any]]()
        shown = signals[cell.benchmark] = []
        with Grader(cell.task) as grader:
            for record in bar(chosen(cell), f"{method} seed {seed}, {cell.benchmark}", unit="problem"):
                mine = samples[record.id]
                part = annotator.part(cell, record, mine, grader.grade([record] * len(mine), list(mine["text"])))
                _write(work, cell, f"parts/{cell.benchmark}/{len(rows)}", part)
                # The first completions, whatever their verdicts: those of rare verdicts would be too many among the others.
                shown += [c for c in part["completions"] if c["sample"] < suite.rollouts.completions]
                rows.append({"id": record.id, "n": part["n"], "verdicts": part["verdicts"]})
        index[cell.benchmark] = {"samples": inputs[cell.benchmark], "problems": rows}
    _write(work, cell, "index", index)
    manifest.write_atomic(paths.entropies(suite.name, method, seed), entropies(signals))
    content = {"stage": "annotate", "suite": suite.name, "method": method, "seed": seed, "inputs": inputs}
    manifest.publish(work, final, ["parts", "index.js"], content, ["torch", "transformers"])


def chosen(cell: "Cell") -> list["Record"]:
    """Return the problems that are shown, evenly spaced over the benchmark: the same ones for every method and seed."""
    records, _ = cell.problems()
    count = min(cell.suite.rollouts.problems, len(records))
    return [records[i * len(records) // count] for i in range(count)]


class Annotator:
    """The models of one method and seed, and what they say of completions."""

    def __init__(self, suite: "Suite", method: str, seed: int) -> None:
        import torch

        from sage import manifest, paths, seeds
        from sage.policy import model as models
        from sage.train.shaping import Shaper

        folders = [paths.checkpoint(suite.name, name, seed) for name in (method, "base")]
        for folder in folders:
            manifest.require(folder)
        torch.set_num_threads(suite.rl.threads)
        self.tokenizer = models.load_tokenizer(folders[0] / "model")
        self.device = models.device()
        self.policy, self.anchor = (models.load_model(folder / "model").to(self.device) for folder in folders)
        self.temperature, self.last, self.root = suite.rl.temperature, suite.rl.steps - 1, seeds.root(suite.name, seed)
        guide = suite.guide(method)
        self.shaper = Shaper(guide, suite.guides, suite.rl.steps) if guide else None

    def part(
        self, cell: "Cell", record: "Record", samples: "pd.DataFrame", verdicts: list[dict[str, str]]
    ) -> dict[str, Any]:
        """Return what the browser shows of a problem: it, the verdicts of all its completions, and some of them whole."""
        from sage.policy.tokens import encode_prompts

        primary = cell.task.GRADES[0]
        [prompt] = encode_prompts(self.tokenizer, [cell.task.prompt(record)])
        kept = first_of_each([v[primary] for v in verdicts], cell.suite.rollouts.completions)
        return {
            "problem": record.problem,
            "answer": record.answer,
            "n": len(samples),
            "verdicts": {grade: Counter(v[grade] for v in verdicts) for grade in cell.task.GRADES},
            "completions": [
                {
                    "sample": int(row["sample"]),
                    "verdicts": verdicts[place],
                    "finish": row["finish"],
                    "tokens": [self.tokenizer.decode([token]) for token in row["tokens"]],
                    **self.signals(prompt, list(row["tokens"]), self._noise(cell, record, int(row["sample"]))),
                }
                for place, row in zip(kept, samples.iloc[kept].to_dict("records"), strict=True)
            ],
        }

    def signals(self, prompt: list[int], completion: list[int], noise: int) -> dict[str, list[float]]:
        """Return of each token log pi, log pi_ref, H_t in nats, and, for a method with a guide, q_t.

        Log-probs are those of the distribution at the training temperature, which the objective is about; H_t is that at
        temperature 1. The guide has its strength of the last iteration; ``noise`` keys the draws of Random and Token.
        """
        import numpy as np
        import torch

        from sage.policy.forward import collate, score

        batch = collate([prompt], [completion], self.device)
        with torch.inference_mode():
            policy, anchor = (score(model, batch, self.temperature) for model in (self.policy, self.anchor))
            found = {"policy": policy.logp, "anchor": anchor.logp, "entropy": policy.entropy}
            if self.shaper:
                keys = np.array([noise], np.uint64)
                found["guide"] = self.shaper.guide(policy, batch.mask, keys, self.last)
        return {name: [round(value, DIGITS) + 0.0 for value in row[0].tolist()] for name, row in found.items()}

    def _noise(self, cell: "Cell", record: "Record", sample: int) -> int:
        from sage import seeds

        return seeds.stream(self.root, "annotation", cell.benchmark, record.id, sample)


def entropies(signals: dict[str, list[dict[str, Any]]]) -> str:
    """Return ``entropy.csv``, of completions with their signals by benchmark: benchmark, entropy, tokens, guide.

    ``entropy`` is the lower edge of a bin of ``BIN`` nats, ``guide`` the mean over its tokens, empty for a method without one.
    """
    import pandas as pd

    tables = []
    for benchmark, completions in signals.items():
        columns = {name: [x for c in completions for x in c.get(name, [])] for name in ("entropy", "guide")}
        table = pd.DataFrame({"entropy": columns["entropy"], "guide": columns["guide"] or float("nan")})
        table["entropy"] = (table["entropy"] // BIN * BIN).round(DIGITS)
        bins = table.groupby("entropy", as_index=False).agg(tokens=("entropy", "size"), guide=("guide", "mean"))
        tables.append(bins.assign(benchmark=benchmark)[["benchmark", "entropy", "tokens", "guide"]])
    return pd.concat(tables).to_csv(index=False, lineterminator="\n", float_format=f"%.{DIGITS}f")


def first_of_each(verdicts: list[str], count: int) -> list[int]:
    """Return the places of the first ``count`` of each verdict, ascending: a rare verdict is not lost in a common one."""
    seen, kept = Counter[str](), []
    for place, verdict in enumerate(verdicts):
        seen[verdict] += 1
        if seen[verdict] <= count:
            kept.append(place)
    return kept


def _samples(cell: "Cell") -> dict[str, "pd.DataFrame"]:
    import pandas as pd

    from sage.evaluate.sample import FILE

    table = pd.read_parquet(cell.samples / FILE)
    return {str(problem): rows for problem, rows in table.groupby("problem", sort=False)}


def _write(work: Path, cell: "Cell", name: str, content: Any) -> None:
    """Write a script that hands ``content`` to the page under its own path."""
    from sage import manifest

    path, text = f"{cell.method}/seed{cell.seed}/{name}", json.dumps(content, separators=(",", ":"), allow_nan=False)
    manifest.write_atomic(work / f"{name}.js", f"rollouts({json.dumps(path)},{text})\n")


if __name__ == "__main__":
    entry(main)
