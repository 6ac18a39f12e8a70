"""What a training run depends on, as one line: its configuration and the content of its inputs."""

from typing import TYPE_CHECKING

from sage import manifest, paths

if TYPE_CHECKING:
    from sage.config import Suite


def training_key(suite: "Suite", method: str) -> str:
    """Return the key of the run of ``method``, ``base`` for fine-tuning; the same for all seeds.

    Raises :class:`~sage.errors.UserError` where an input has no manifest.
    """
    if method == "base":
        inputs = [paths.processed(suite.name, suite.sft.dataset)]
        inputs += [paths.pretrained(suite.name)] if suite.pretrained else []
        stage = suite.stage_key("sft")
    else:
        inputs = [paths.checkpoint(suite.name, "base", 0), paths.processed(suite.name, suite.rl.dataset)]
        stage = suite.stage_key("rl", method=method)
    return " ".join((stage, *(manifest.payload_hash(manifest.load(folder)) for folder in inputs)))
