"""TensorBoard shows the numbers of a run's metrics.jsonl. The test reads them in three ways: with the reader for scripts,
with the reader that TensorBoard's own pages use, and from a server as a browser does.

Usage: tensorboard_test.py RUN"""
import json
import math
import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request

from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util import tensor_util

run = sys.argv[1]
lines = [json.loads(line) for line in open(os.path.join(run, "metrics.jsonl"))]
folder = os.path.join(run, "tensorboard")
failures = 0


def check(ok, what):
    global failures
    if not ok:
        print("FAILED:", what)
        failures += 1


def compare(reader, tag, points):
    """points: [(step, value, wall time)]"""
    key = {"train/loss": "loss", "train/learning_rate": "lr", "train/grad_norm": "grad_norm", "train/loss_scale": "loss_scale"}.get(tag)
    if tag.startswith("valid/"):
        check([p[0] for p in points] == [20, 40, 60, 80, 100], f"{reader}: {tag} at steps {[p[0] for p in points]}")
        return
    check([p[0] for p in points] == [line["step"] for line in lines], f"{reader}: {tag} at steps {[p[0] for p in points]}")
    if key:
        for (step, value, _), line in zip(points, lines):
            check(math.isclose(value, line[key], rel_tol=1e-6, abs_tol=1e-9), f"{reader}: {tag} of step {step} is {value}, not {line[key]}")
    times = [p[2] for p in points]
    check(times == sorted(times), f"{reader}: {tag}: the times are not in order")
    written = os.path.getmtime(os.path.join(run, "metrics.jsonl"))
    check(abs(times[-1] - written) < 5, f"{reader}: {tag}: the last time is {times[-1]}, metrics.jsonl was written at {written}")


scalars = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0})
scalars.Reload()
tags = scalars.Tags()["scalars"]
expected = {"train/loss", "train/learning_rate", "train/grad_norm", "train/loss_scale", "speed/samples_per_second", "speed/step_ms", "speed/speed_of_light"}
expected |= {"phase_ms/" + phase for phase in ("data_wait", "copy", "forward", "backward", "communication", "optimizer", "other")}
expected |= {"valid/" + metric for metric in ("loss", "top1", "top5", "macro_f1", "auc")}
check(set(tags) == expected, f"missing tags: {sorted(expected - set(tags))}, unexpected: {sorted(set(tags) - expected)}")
for tag in tags:
    compare("EventAccumulator", tag, [(e.step, e.value, e.wall_time) for e in scalars.Scalars(tag)])

plugin = plugin_event_accumulator.EventAccumulator(folder, size_guidance={plugin_event_accumulator.TENSORS: 0})
plugin.Reload()
check(sorted(plugin.Tags()["tensors"]) == sorted(tags), "the readers have different tags")
for tag in tags:
    check(plugin.SummaryMetadata(tag).plugin_data.plugin_name == "scalars", f"{tag} is not a scalar")
    compare("plugin", tag, [(e.step, float(tensor_util.make_ndarray(e.tensor_proto)), e.wall_time) for e in plugin.Tensors(tag)])

server = subprocess.Popen(
    [sys.executable, "-m", "tensorboard.main", "--logdir", run, "--port", "0", "--host", "127.0.0.1", "--samples_per_plugin", "scalars=10000"],
    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
try:
    url = next(m.group(1) for m in (re.search(r"at (http://\S+?)/? ", line) for line in server.stderr) if m)
    ask = lambda path: json.load(urllib.request.urlopen(url + path, timeout=30))
    for _ in range(100):
        shown = ask("/data/plugin/scalars/tags")
        if shown and len(next(iter(shown.values()))) == len(tags):
            break
        subprocess.run(["sleep", "0.2"])
    check(list(shown) == ["tensorboard"], f"the server shows runs {list(shown)}")
    for tag in tags:
        query = urllib.parse.urlencode({"run": "tensorboard", "tag": tag})
        compare("server", tag, [(step, float(value), time) for time, step, value in ask("/data/plugin/scalars/scalars?" + query)])
finally:
    server.terminate()
sys.exit(failures > 0)
