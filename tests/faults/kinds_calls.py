"""System calls that fail or take long, and a clock that jumps. See faulty_calls.cpp."""

import errno

from kinds import kind
from runs import COMM_TIMEOUT

CHECKPOINT, METRICS, SHARD, RUN = "/checkpoints/", "metrics.jsonl", "/set/train-", "/run/"


def with_fault(t, call, path, error, times, seconds=0.0, after=None, codes=(0, 3)):
    after = t.rng.choice([0, 1, 3, 10, 30]) if after is None else after
    rank = t.rng.choice([None, t.rng.randrange(t.ranks)])
    what = errno.errorcode.get(error, f"{seconds:.1f} s")
    t.detail += f" {call} {path} {what} after {after}, {times} times, rank {'any' if rank is None else rank}"
    process = t.start(wrap=t.faulty(f"{call},{path},{error},{after},{times},{seconds}", rank))
    t.expect(process, codes, limit=60)
    t.resume()


def often(t):
    return t.rng.choice([1, 3, 1000000])


@kind("0 if the reads can be repeated, else 3 with the name of the file")
def failing_open(t):
    path = t.rng.choice([CHECKPOINT, METRICS, SHARD, RUN, "config.cfg", "run.json"])
    with_fault(t, "open", path, t.rng.choice([errno.EIO, errno.EACCES, errno.EMFILE, errno.ENOSPC]), often(t))


@kind("0 if the reads can be repeated, else 3 with the name of the file")
def failing_read(t):
    with_fault(t, "read", t.rng.choice([SHARD, SHARD, CHECKPOINT]), t.rng.choice([errno.EIO, errno.ESTALE]), often(t))


@kind("0 if a later attempt works, else 3 with the older checkpoints intact")
def failing_write(t):
    path = t.rng.choice([CHECKPOINT, CHECKPOINT, METRICS, RUN])
    with_fault(t, "write", path, t.rng.choice([errno.EIO, errno.ENOSPC, errno.EDQUOT]), often(t))


@kind("0 if a later attempt works, else 3 with the older checkpoints intact")
def failing_sync(t):
    with_fault(t, "fsync", t.rng.choice([CHECKPOINT, METRICS, RUN]), t.rng.choice([errno.EIO, errno.ENOSPC]), often(t))


@kind("0 if a later attempt works, else 3 with the older checkpoints intact")
def failing_rename(t):
    with_fault(t, "rename", t.rng.choice([CHECKPOINT, RUN, "latest", "config.cfg"]), t.rng.choice([errno.EIO, errno.EACCES, errno.ENOSPC]), often(t))


@kind("0 if a later attempt works, else 3 with the older checkpoints intact")
def failing_allocation(t):
    with_fault(t, "fallocate", t.rng.choice([CHECKPOINT, "/dev/shm"]), t.rng.choice([errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO]), often(t), after=t.rng.choice([0, 1, 3]))


@kind("0; a call that takes longer than comm.timeout may end the run with 3 or 5")
def slow_call(t):
    call = t.rng.choice(["open", "read", "write", "fsync", "rename"])
    path = SHARD if call == "read" else t.rng.choice([CHECKPOINT, RUN])
    seconds = t.rng.choice([0.05, 1.0, COMM_TIMEOUT - 4.0])
    with_fault(t, call, path, 0, t.rng.choice([1, 2]), seconds, codes=(0,))


@kind("0 or 75 (a limit of time); the next start continues with equal bits")
def clock_jump(t):
    shift = t.rng.choice([-86400 * 400, -3600, -5, 5, 3600, 86400 * 400])
    with_fault(t, "clock", "", 0, 1, shift, after=t.rng.choice([10, 100, 1000, 5000]), codes=(0,))
