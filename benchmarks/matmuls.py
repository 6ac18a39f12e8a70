"""How much of an RL iteration of the laptop model is spent outside matrix products: ours alone, and how long each phase takes.

Matrix products are torch's mm, addmm, bmm and baddbmm; attention's fused kernel counts as outside, though most of it is
products. The profiler's own cost is a part of what it measures, so that the share is an upper bound.
"""

from torch.profiler import ProfilerActivity, profile

from benchmarks.cases import Ours, laptop
from benchmarks.compare import Result, alone

PRODUCTS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"}

PLAN = (
    "The largest part of it is the update's elementwise work (SwiGLU, norms, rotary positions, AdamW). `rl.share_prompts`"
    " took away what of it was spent on prompts that the completions of a group share, 24 of 51 tokens of each sequence;"
    " next would be kernels that do several of these steps in one pass (torch.compile with a C++ compiler at hand)."
)


def outside(training: Ours) -> float:
    """Return the share of one iteration's operator time that is not spent in matrix products."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        training.iterate()
    whole = training.seconds[-1]["total"]
    inside = sum(event.self_cpu_time_total for event in profiler.key_averages() if event.key in PRODUCTS) / 1e6
    return 1.0 - inside / whole


def results(small: bool = False) -> list[Result]:
    """Return the share, and the seconds of each phase."""
    training = Ours(laptop(small))
    for _ in range(2 if small else 8):
        training.iterate()
    measured = training.seconds[1:]
    phases = [
        alone(f"laptop iteration: {name}", [row[name] for row in measured], "s", None)
        for name in ("rollout", "grade", "anchor", "update", "total")
    ]
    shares = [outside(training) for _ in range(2 if small else 5)]
    return [alone("laptop iteration: share outside matrix products", shares, "of 1", None, PLAN), *phases]
