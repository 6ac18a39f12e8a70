"""Supervised fine-tuning: from the processed records to the base model, one for all methods and seeds.

In: ``processed/{dataset}``. Out: ``checkpoints/base`` (an ordinary model folder) and its step log.
"""

import argparse
import time
from typing import TYPE_CHECKING, Any

from sage.cli import entry

if TYPE_CHECKING:
    from sage.config import Suite


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m sage.train.sft", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/demo.yaml")
    arguments = parser.parse_args()
    from sage.config import load_suite

    train(load_suite(arguments.config))


def train(suite: "Suite") -> None:
    """Make the base model of ``suite``; goes on where a killed run stopped."""
    import torch

    from sage import manifest, paths, tasks
    from sage.policy import model as models
    from sage.policy.tokens import encode_prompts, encode_targets
    from sage.train import optim
    from sage.train.key import training_key
    from sage.train.state import load_state, save_state
    from sage.train.watch import Watch

    started, config = time.time(), suite.sft
    torch.set_num_threads(config.threads)
    dataset = paths.processed(suite.name, config.dataset)
    data = manifest.require(dataset)
    task = tasks.load(suite.dataset(config.dataset).task)
    records = tasks.read_records(dataset / "records.jsonl")
    final = paths.checkpoint(suite.name, "base", 0)
    key = training_key(suite, "base")
    work = manifest.work_folder(final, key)

    tokenizer = models.make_tokenizer(task.VOCABULARY)
    model = models.make_model(suite.model, len(tokenizer), config.seed)
    optimiser = optim.make_optimiser(model.parameters(), config.optimiser)
    state = load_state(work, model, optimiser)
    prompts = encode_prompts(tokenizer, [task.prompt(record) for record in records])
    targets = encode_targets(tokenizer, [task.target(record) for record in records])
    with Watch(work, state.step, config.steps) as watch:
        for row in _steps(suite, model, optimiser, prompts, targets, state):
            state.step += 1
            state.log.append(row)
            stopping = watch.asked
            if stopping or state.step % config.save_every == 0:
                save_state(work, state, model, optimiser)
            watch.tell(state.step, loss=row["loss"])
            if stopping:
                watch.end(state.step)
        _publish(suite, final, work, key, data, model.eval(), tokenizer, state, started)


def _steps(suite: "Suite", model: Any, optimiser: Any, prompts: Any, targets: Any, state: Any) -> Any:
    """Yield the log row of each step from ``state.step`` on, after its update."""
    from sage import seeds
    from sage.policy.forward import collate
    from sage.progress import bar
    from sage.train import optim
    from sage.train.data import batches_by_length

    config, root = suite.sft, seeds.stream(suite.sft.seed, "sft", suite.name)
    lengths = [len(p) + len(t) for p, t in zip(prompts, targets, strict=True)]
    model.train()
    batches: list[Any] = []
    epoch, first = -1, 0
    for step in bar(range(state.step, config.steps), "sft", initial=state.step, total=config.steps):
        while step - first >= len(batches):
            first, epoch = first + len(batches), epoch + 1
            batches = batches_by_length(root, lengths, config.batch, epoch)
        rows = batches[step - first]
        batch = collate([prompts[i] for i in rows], [targets[i] for i in rows])
        loss = _loss(model, batch)
        where = f"sft step {step}"
        if not loss.isfinite():
            raise optim.NonFinite(f"{where}: the loss is {float(loss.detach())}; the weights were not changed")
        loss.backward()
        lr = optim.learning_rate(config.optimiser, step, config.steps)
        norm = optim.apply_update(optimiser, config.optimiser, lr, where)
        yield {"step": step, "loss": float(loss.detach()), "tokens": len(batch.targets), "grad_norm": norm, "lr": lr}


def _loss(model: Any, batch: Any) -> Any:
    """Return the mean negative log-likelihood of the target tokens, in nats."""
    from sage.policy.forward import hidden_rows, logprobs

    return -logprobs(model.lm_head(hidden_rows(model, batch)), batch.targets).mean()


def _publish(
    suite: "Suite",
    final: Any,
    work: Any,
    key: str,
    data: Any,
    model: Any,
    tokenizer: Any,
    state: Any,
    started: float,
) -> None:
    from sage import manifest, paths
    from sage.policy.model import save
    from sage.train.state import write_table

    save(work / "model", model, tokenizer)
    log = paths.training_log(suite.name, "base", 0)
    write_table(log, state.log)
    manifest.write_run(log.with_suffix(".run.json"), started, threads=suite.sft.threads)
    content = {
        "stage": "sft",
        "suite": suite.name,
        "method": "base",
        "seed": suite.sft.seed,
        "key": key,
        "inputs": {suite.sft.dataset: manifest.payload_hash(data)},
        "log": manifest.sha256(log),
    }
    manifest.publish(work, final, ["model"], content, packages=["torch", "transformers", "tokenizers"])


if __name__ == "__main__":
    entry(main)
