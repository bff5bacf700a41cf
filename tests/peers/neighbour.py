"""Training beside a busy neighbour: a loop that never sleeps, bound to one core. Each run is repeated without it."""
import contextlib
import os
import statistics
import subprocess
import sys

import other_work

STEPS = {"linear": 12000, "mlp": 150, "resnet20": 24, "resnet18": 6, "gpt2": 40, "vit": 10, "mobilenet": 12, "unet": 20, "cosmoflow": 24}
GOAL = 0.4  # of its own rate without a neighbour


@contextlib.contextmanager
def neighbour(core):
    """A busy loop on this core; None: nothing."""
    if core is None:
        yield
        return
    # The loop ends with this process, however that ends.
    program = f"import os\nwhile os.getppid() == {os.getpid()}:\n    for _ in range(100000): pass"
    loop = subprocess.Popen([sys.executable, "-c", program], preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    try:
        yield
    finally:
        loop.kill()
        loop.wait()


def rate(case, steps, core):
    """Samples per second. From the time of all steps: beside a neighbour a few steps are long, and a median would hide them."""
    with neighbour(core):
        seconds = case.train(["--train.steps", str(steps)])[2][steps // 5:]
    return case.batch * len(seconds) / sum(seconds)


def compare(make_case, networks, setups, turns, record):
    """make_case(network, ranks, threads): a Case. Prints and records a row for each."""
    core = max(os.sched_getaffinity(0))
    print(f"\nbeside a busy loop on core {core}, fp32: samples/s, medians of {turns}")
    print(f"{'network':24} {'ranks':>5} {'threads':>7} {'alone':>10} {'beside it':>10} {'kept':>6} {'goal':>5}")
    for network in networks:
        for ranks, threads in setups:
            case = make_case(network, ranks, threads)
            rates, other = other_work.measured_twice(
                lambda: [(rate(case, STEPS[network], None), rate(case, STEPS[network], core)) for _ in range(turns)])
            alone, beside = (statistics.median(column) for column in zip(*rates))
            record({"name": case.name, "precision": "fp32", "ranks": ranks, "threads": threads, "alone": alone, "beside": beside,
                    "ratio": beside / alone, "goal": GOAL, "other_work": other})
            print(f"{case.name:24} {ranks:5} {threads:7} {alone:10.0f} {beside:10.0f} {beside / alone:6.1%} {GOAL:5.0%}{other_work.mark(other)}",
                  flush=True)
