"""Supervised fine-tuning: from the processed records to the base model, one for all methods and seeds.

In: ``processed/{dataset}`` and, where the suite has one, the pretrained model. Out: ``checkpoints/base`` (an ordinary model
folder) and its step log. A pretrained model is tuned by an adapter where the suite has one, and that is merged at the end:
the anchor of what comes later is the model after fine-tuning.
"""

import argparse
import time
from typing import TYPE_CHECKING, Any

from sage.cli import entry
from sage.errors import UserError

if TYPE_CHECKING:
    from sage.config import Sft, Suite


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
    from sage.policy.model import device
    from sage.policy.tokens import encode_prompts, encode_targets, fitting
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
    inputs = {config.dataset: manifest.payload_hash(data)}
    if suite.pretrained:
        inputs["pretrained"] = manifest.payload_hash(manifest.require(paths.pretrained(suite.name)))
    key = training_key(suite, "base")
    work = manifest.work_folder(final, key)

    tokenizer, model, adapter = _start(suite, task)
    model.to(device())
    optimiser = optim.make_optimiser(model.parameters(), config.optimiser)
    state = load_state(work, model, optimiser)
    prompts = encode_prompts(tokenizer, [task.prompt(record) for record in records])
    rows = fitting(prompts, suite.pretrained, str(dataset), skip=True)
    prompts = [prompts[i] for i in rows]
    targets = encode_targets(tokenizer, [task.target(records[i]) for i in rows])
    prompts, targets = _short_enough(config, prompts, targets)
    with Watch(work, state.step, steps_of(config, len(prompts))) as watch:
        for row in _steps(suite, model, optimiser, prompts, targets, state):
            state.step += 1
            state.log.append(row)
            stopping = watch.asked
            if stopping or state.step % config.save_every == 0:
                save_state(work, state, model, optimiser)
            watch.tell(state.step, loss=row["loss"])
            if stopping:
                watch.end(state.step)
        model = adapter.merge_and_unload() if adapter else model
        _publish(suite, final, work, key, inputs, model.eval(), tokenizer, state, started)


def _start(suite: "Suite", task: Any) -> tuple[Any, Any, Any]:
    """Return the tokenizer, the model before fine-tuning, and the handle of its adapter or None."""
    from sage import paths, seeds
    from sage.policy import adapter
    from sage.policy import model as models

    if not suite.pretrained:
        tokenizer = models.make_tokenizer(task.VOCABULARY)
        return tokenizer, models.make_model(suite.model, len(tokenizer), suite.sft.seed), None
    folder = paths.pretrained(suite.name) / "model"
    tokenizer, model = models.load_tokenizer(folder), models.load_model(folder)
    root = seeds.stream(suite.sft.seed, "sft", suite.name)
    return tokenizer, model, adapter.add(model, suite.adapter, root) if suite.adapter else None


def _short_enough(config: "Sft", prompts: list[Any], targets: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return prompts and targets without those rows that are longer than the configuration allows; print how many."""
    pairs = list(zip(prompts, targets, strict=True))
    kept = [(p, t) for p, t in pairs if config.max_tokens is None or len(p) + len(t) <= config.max_tokens]
    if not kept:
        raise UserError(f"sft.max_tokens: every row of {config.dataset} has more than {config.max_tokens}; raise it")
    if len(kept) < len(pairs):
        print(f"{config.dataset}: {len(pairs) - len(kept)} of {len(pairs)} rows are too long and left out", flush=True)
    return [p for p, _ in kept], [t for _, t in kept]


def steps_of(config: "Sft", rows: int) -> int:
    """Return the number of steps: the one that is given, or that of the epochs, each of which drops what is left over."""
    if config.steps is not None:
        return config.steps
    if rows < config.batch:
        raise UserError(f"sft.batch: {config.batch} is more than the {rows} rows of {config.dataset}; lower it")
    return (config.epochs or 0) * (rows // config.batch)


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
    steps = steps_of(config, len(prompts))
    for step in bar(range(state.step, steps), "sft", initial=state.step, total=steps):
        while step - first >= len(batches):
            first, epoch = first + len(batches), epoch + 1
            batches = batches_by_length(root, lengths, config.batch, epoch)
        rows = batches[step - first]
        batch = collate([prompts[i] for i in rows], [targets[i] for i in rows], model.device)
        loss = _loss(model, batch)
        where = f"sft step {step}"
        if not loss.isfinite():
            raise optim.NonFinite(f"{where}: the loss is {float(loss.detach())}; the weights were not changed")
        loss.backward()
        lr = optim.learning_rate(config.optimiser, step, steps)
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
    inputs: dict[str, str],
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
        "inputs": inputs,
        "log": manifest.sha256(log),
    }
    manifest.publish(work, final, ["model"], content, packages=["torch", "transformers", "tokenizers"])


if __name__ == "__main__":
    entry(main)
