"""Processes that are killed, stopped or signalled."""

import os
import signal
import time

from kinds import kind
from runs import COMM_TIMEOUT, STEPS


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


@kind("137 from mpirun, or 5; the next start continues with equal bits")
def kill_rank(t):
    process = t.start()
    t.at_random_moment(process)
    rank, pid = t.pick_rank()
    t.detail += f", rank {rank}"
    if pid:
        t.killed = True
        send(pid, signal.SIGKILL)
    t.expect(process, (0, 1, 5, 137), limit=40)
    t.resume()


@kind("all ranks end within seconds; the next start continues with equal bits")
def kill_mpirun(t):
    t.ranks = max(2, t.ranks)
    process = t.start()
    t.at_random_moment(process)
    t.killed = True
    send(process.child.pid, signal.SIGKILL)
    t.expect(process, (0, 137))
    t.resume()


@kind("all processes at once, as at a power-off without loss of written data: the next start continues with equal bits")
def kill_all(t):
    process = t.start()
    t.at_random_moment(process, ("start", "step", "save", "save"))
    t.killed = True
    for pid in [process.child.pid, *t.rank_pids().values()]:
        send(pid, signal.SIGKILL)
    t.expect(process, (0, 137))
    t.resume()


@kind("5 within comm.timeout and 5 s, with the name of the rank")
def stop_rank(t):
    t.ranks = max(2, t.ranks)
    process = t.start()
    t.at_random_moment(process)
    rank, pid = t.pick_rank()
    t.detail += f", rank {rank}"
    if pid:
        send(pid, signal.SIGSTOP)
    t.killed = True  # mpirun ends the stopped rank with -9
    t.expect(process, (0, 5), limit=COMM_TIMEOUT + 5 + 7)
    t.resume()


@kind("a pause of all ranks, shorter than comm.timeout, changes nothing")
def pause_all(t):
    process = t.start()
    t.at_random_moment(process)
    pids = list(t.rank_pids().values())
    for pid in pids:
        send(pid, signal.SIGSTOP)
    pause = t.rng.uniform(0.5, COMM_TIMEOUT - 3)
    t.detail += f" for {pause:.1f} s"
    time.sleep(pause)
    for pid in pids:
        send(pid, signal.SIGCONT)
    if t.expect(process, (0,), limit=90) == 0:
        t.compare()


@kind("75 with a checkpoint, or 0 if the training was at its end; the next start continues with equal bits")
def signal_storm(t):
    process = t.start(launcher=None if t.ranks == 1 else [t.tools.run_sh, str(t.ranks)])
    storm = t.rng.choice([(signal.SIGUSR2,), (signal.SIGUSR2, signal.SIGCONT, signal.SIGWINCH, signal.SIGPIPE)])
    # Before the training begins, nothing ignores SIGPIPE.
    started = t.at_random_moment(process, ("step", "step", "save") + (("start",) if signal.SIGPIPE not in storm else ()))
    count = t.rng.randint(1, 30)
    t.detail += f", {count} x {'+'.join(s.name for s in storm)}"
    for _ in range(count):
        pids = list(t.rank_pids().values()) if t.rng.random() < 0.7 or t.ranks > 1 else [process.child.pid]
        for pid in pids if started else ():
            send(pid, t.rng.choice(storm))
        time.sleep(t.rng.uniform(0, 0.01))
    t.expect(process, (0, 75), limit=60)
    t.resume()


@kind("75 with a checkpoint; the next start continues with equal bits")
def ask_to_stop(t):
    way = t.rng.choice(["STOP file", "SIGTERM to a rank", "SIGTERM to run.sh", "run.walltime"])
    t.detail += f" {way}"
    options = ["--run.walltime", "4s", "--run.stop_margin", "3s"] if way == "run.walltime" else []
    process = t.start(options=options, launcher=[t.tools.run_sh, str(t.ranks)])
    t.wait_for_step(process, t.rng.randint(1, STEPS - 5))
    if way == "STOP file" and t.run.is_dir():
        (t.run / "STOP").touch()
    elif way == "SIGTERM to a rank":
        _, pid = t.pick_rank()
        send(pid or process.child.pid, signal.SIGTERM)
    elif way == "SIGTERM to run.sh":
        send(process.child.pid, signal.SIGTERM)
    t.expect(process, (0, 75), limit=60)
    t.resume()
