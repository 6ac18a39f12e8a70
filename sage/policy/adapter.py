"""Low-rank adapters: made from a seed, saved alone, merged for sampling; and the anchor, which is the adapter off.

peft replaces linear layers inside the model that it is given, so the model itself goes on being what everybody calls.
"""

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sage import seeds
from sage.errors import UserError

if TYPE_CHECKING:
    from sage.config import Adapter

CONFIG = "adapter_config.json"


def add(model: Any, config: "Adapter", seed: int) -> Any:
    """Put an adapter into ``model``, its weights drawn from the stream ("adapter",) of ``seed``; return peft's handle.

    Only the adapter's weights are trained from here on. It changes no output before its first update.
    """
    from peft import LoraConfig, get_peft_model

    options = LoraConfig(
        r=config.r,
        lora_alpha=config.alpha,
        lora_dropout=float(config.dropout),
        target_modules=sorted(config.targets),
        task_type="CAUSAL_LM",
    )
    # peft draws from torch's global generator; fork_rng keeps that from reaching anybody else.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.stream(seed, "adapter") % 2**63)
        return get_peft_model(model, options)


def save(folder: Path, adapter: Any) -> None:
    """Write the adapter into ``folder`` as any program with peft loads it, always with the same bytes."""
    adapter.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)  # a card to be filled in by hand
    path = folder / CONFIG
    content = json.loads(path.read_text(encoding="utf-8"))
    content["target_modules"] = sorted(content["target_modules"])  # peft keeps a set, which has no order
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def base_of(folder: Path) -> Path | None:
    """Return the folder of the model that the adapter in ``folder`` belongs to; None where a whole model lies there."""
    path = folder / CONFIG
    if not path.is_file():
        return None
    return Path(json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"])


def merged(model: Any, folder: Path) -> nn.Module:
    """Return ``model`` with the adapter in ``folder`` added to its weights."""
    from peft import PeftModel

    return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()


class AdapterOff:
    """The anchor of a policy with an adapter: the very same weights, asked with the adapter switched off."""

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.base = adapter, adapter.get_base_model()
        self.lm_head = self.base.lm_head

    def model(self, **inputs: Any) -> Any:
        """Return what the model without its adapter and its head says, as transformers returns it."""
        with self.adapter.disable_adapter():
            return self.base.model(**inputs)


def frozen_hash(model: nn.Module) -> str:
    """Return a hash of the weights that are not trained, by name and bytes."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        if not weight.requires_grad:
            digest.update(f"{name.replace('.base_layer', '')} {weight.dtype} {list(weight.shape)}\n".encode())
            digest.update(_bytes(weight))
    return digest.hexdigest()


def _bytes(weight: Tensor) -> bytes:
    return weight.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


def check_unchanged(model: nn.Module, before: str) -> str:
    """Return ``before``; :class:`UserError` where the weights that are not trained have another hash now."""
    if frozen_hash(model) != before:
        raise UserError("the anchor's weights have changed during training, so its divergence means nothing; a bug")
    return before
