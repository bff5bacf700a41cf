"""Checkpoints and shards that are damaged, and run folders that are removed or used twice."""

import os
import shutil
import signal
import time

from kinds import kind
from runs import STEPS, remove


def flip(path, rng, first=0, count=1):
    """Changes some bytes from `first` on."""
    size = path.stat().st_size
    with open(path, "r+b") as file:
        for _ in range(count):
            at = rng.randrange(min(first, size - 1), size)
            file.seek(at)
            old = file.read(1)
            file.seek(at)
            file.write(bytes([old[0] ^ rng.randint(1, 255)]))


def harm_file(t, path, ways):
    way = t.rng.choice(ways)
    if way == "flipped":
        flip(path, t.rng, count=t.rng.choice([1, 20, 500]))
    elif way == "header":
        with open(path, "r+b") as file:
            file.seek(t.rng.randrange(0, 2048))
            file.write(bytes(t.rng.randrange(256) for _ in range(16)))
    elif way == "cut":
        os.truncate(path, t.rng.randrange(path.stat().st_size))
    elif way == "empty":
        os.truncate(path, 0)
    elif way == "removed":
        path.unlink()
    elif way == "folder":
        path.unlink()
        path.mkdir()
    return way


def interrupted(t):
    """A training that was stopped with some checkpoints."""
    t.options[1] = t.rng.choice(["1", "3"])
    process = t.start()
    t.wait_for_step(process, t.rng.randint(8, STEPS - 8))
    t.killed = True
    for pid in [*t.rank_pids().values(), process.child.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    t.expect(process, (0, 137))
    return sorted((t.run / "checkpoints").glob("step-*.h5"))


@kind("the damaged one is passed over, with a warning; equal bits from the one before")
def damaged_checkpoint(t):
    checkpoints = interrupted(t)
    harmed = checkpoints[-t.rng.choice([1, 1, 2]) :] if len(checkpoints) > 2 else checkpoints[-1:]
    way = [harm_file(t, path, ["flipped", "header", "cut", "empty", "removed", "folder"]) for path in harmed]
    t.detail += f", newest {len(harmed)} of {len(checkpoints)}: {' '.join(way)}"
    t.resume(codes=(0,) if len(checkpoints) > len(harmed) else (0, 3))


@kind("3 if no checkpoint is whole; the run folder stays as it is")
def all_checkpoints_damaged(t):
    checkpoints = interrupted(t)
    way = [harm_file(t, path, ["cut", "empty"]) for path in checkpoints]
    t.detail += f", all {len(checkpoints)}: {' '.join(sorted(set(way)))}"
    before = t.steps()
    t.resume(codes=(3,) if checkpoints else (0,))
    if checkpoints and t.steps() != before:
        t.problem("metrics.jsonl was changed")
    t.resume(options=["--run.resume", "never"])


@kind("two checkpoints with exchanged names, or a wrong `latest`: equal bits, or 3 with one line")
def swapped_checkpoints(t):
    checkpoints = interrupted(t)
    latest = t.run / "checkpoints" / "latest"
    way = t.rng.choice(["exchanged", "copied", "latest of nothing", "latest empty", "latest removed"])
    if way in ("exchanged", "copied") and len(checkpoints) > 1:
        a, b = checkpoints[-1], t.rng.choice(checkpoints[:-1])
        kept = a.read_bytes()
        shutil.copy(b, a)
        if way == "exchanged":
            b.write_bytes(kept)
    elif way == "latest of nothing":
        latest.write_text(t.rng.choice(["step-99999999.h5\n", "../../x\n", "/dev/null\n", "\0\0\0"]))
    elif way == "latest empty":
        latest.write_text("")
    elif way == "latest removed":
        latest.unlink(missing_ok=True)
    t.detail += f", {way}"
    t.resume(codes=(0, 3))


def own_shards(t):
    """Gives the trial a copy of the shards and a variant that reads them."""
    if t.variant == "conv":
        t.variant = "adamw"
    (t.folder / "set").unlink()
    shutil.copytree(t.tools.folder / "set", t.folder / "set")
    return t.rng.choice(sorted((t.folder / "set").glob("train-*.h5")))


@kind("3 with the name of the file, or 0 where only `inspect --verify` can notice it")
def damaged_shard(t):
    shard = own_shards(t)
    process = t.start()
    t.at_random_moment(process, ("start", "step", "step"))
    way = harm_file(t, shard, ["flipped", "header", "cut", "cut", "empty", "removed", "folder"])
    t.detail += f", {shard.name} {way}"
    noticed_late = way in ("flipped", "header")  # other samples: they train differently, and may diverge
    t.expect(process, (0, 3, 4) if noticed_late else (0, 3))
    if noticed_late:
        remove(t.run)
    shutil.rmtree(shard) if shard.is_dir() else shard.unlink(missing_ok=True)
    shutil.copy(t.tools.folder / "set" / shard.name, shard)
    t.resume()


@kind("2, or a warning, if files are missing, new or of another size. An exchange of equally large files is not noticed")
def changed_shards(t):
    shard = own_shards(t)
    interrupted(t)
    way = t.rng.choice(["missing", "new", "larger", "exchanged"])
    if way == "missing":
        shard.unlink()
    elif way == "new":
        shutil.copy(shard, shard.with_name("train-00004.h5"))
    elif way == "larger":
        shutil.copy(t.tools.folder / "larger" / "train-00000.h5", shard)
    else:
        other = t.rng.choice([p for p in shard.parent.glob("train-*.h5") if p != shard])
        aside = shard.with_suffix(".aside")
        shard.rename(aside)
        other.rename(shard)
        aside.rename(other)
    t.detail += f", {shard.name} {way}"
    t.clear_memory_files()
    t.killed = False
    process = t.start(slow=False)
    code = t.expect(process, (0, 2, 3))
    if code == 0 and way != "exchanged" and "resuming with different data" not in process.text():
        t.problem("other data, but no warning")


@kind("3, or 0 if the training was at its end; the next start begins anew, with equal bits")
def removed_folder(t):
    process = t.start()
    t.at_random_moment(process, ("step", "step", "save"))
    if t.rng.random() < 0.3:
        t.detail += ", moved"
        t.run.rename(t.folder / "moved")
    else:
        remove(t.run)
    t.expect(process, (0, 3), limit=60)
    remove(t.run)
    t.resume()


@kind("2 for the second, and nothing changes for the first")
def two_runs(t):
    first = t.start()
    t.wait_for_step(first, t.rng.randint(1, STEPS // 2))
    second = t.start(name="second")
    code = second.wait(60)
    first_was_over = code == 0 and "nothing trained" in second.text()  # on a busy machine
    if code != 2 and not first_was_over:
        t.problem(f"exit code {code} of the second run, expected 2")
    t.judge_lines(code, second.text(), False)
    time.sleep(0.01)
    if t.expect(first, (0,), limit=90) == 0:
        t.compare()
