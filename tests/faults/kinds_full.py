"""File systems without space, and limits of the process."""

import os
import resource
import subprocess
import time

from kinds import kind


def mount_small(folder, size, inodes=None):
    os.makedirs(folder, exist_ok=True)
    options = f"size={size}" + (f",nr_inodes={inodes}" if inodes else "")
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "millrace-faults", str(folder)], check=True)


def unmount(folder):
    subprocess.run(["umount", "-l", str(folder)], check=False)


def fill(folder):
    """Fills the file system to the last byte."""
    with open(os.path.join(folder, "filler"), "wb", buffering=0) as filler:
        for size in (1 << 20, 4096, 1):
            try:
                while filler.write(b"\0" * size) == size:
                    pass
            except OSError:
                continue


def free(folder):
    try:
        os.unlink(os.path.join(folder, "filler"))
    except FileNotFoundError:
        pass


@kind("the training goes on; 0 if there is space again in time, else 3 with the older checkpoints intact", needs_root=True)
def full_run_folder(t):
    mount_small(t.run, "3m", t.rng.choice([None, None, 24]))
    try:
        process = t.start()
        t.at_random_moment(process, ("step", "step", "save"))
        fill(t.run)
        if t.rng.random() < 0.5:
            pause = t.rng.uniform(0.1, 1.5)
            t.detail += f", space again after {pause:.1f} s"
            time.sleep(pause)
            free(t.run)
        t.expect(process, (0, 3), limit=60)
        free(t.run)
        t.resume()
    finally:
        unmount(t.run)


@kind("0, or an end with one line; no restart hangs", needs_root=True)
def full_tmpdir(t):
    mount_small(t.tmp, "24m")
    try:
        process = t.start()
        t.at_random_moment(process, ("step", "step", "save"))
        fill(t.tmp)
        if t.expect(process, (0,), limit=60) != 0:
            free(t.tmp)
            t.resume()
        else:
            t.compare()
    finally:
        unmount(t.tmp)


@kind("0, or an end with one line; no restart hangs", needs_root=True)
def full_shared_memory(t):
    small = t.rng.choice(["4k", "64k", "1m", "8m", None])
    mount_small("/dev/shm", small or "24m")
    try:
        process = t.start()
        if small:
            t.detail += f" {small} from the start"
        else:
            t.at_random_moment(process, ("step", "step", "save"))
            fill("/dev/shm")
        code = t.expect(process, (0, 1, 3, 5), limit=60)
        free("/dev/shm")
        if code == 0:
            t.compare()
        else:
            unmount("/dev/shm")
            mount_small("/dev/shm", "1g")
            t.resume()
    finally:
        unmount("/dev/shm")


LIMITS = {
    "file size": (resource.RLIMIT_FSIZE, [0, 1000, 20_000, 60_000, 200_000]),
    "open files": (resource.RLIMIT_NOFILE, [16, 32, 48]),
    "address space": (resource.RLIMIT_AS, [256 << 20, 512 << 20, 1 << 30]),
    "stack": (resource.RLIMIT_STACK, [128 << 10, 512 << 10, 1 << 20]),
    "locked memory": (resource.RLIMIT_MEMLOCK, [0]),
}


@kind("0, or an end with one line and no crash; the next start continues with equal bits")
def resource_limit(t):
    name = t.rng.choice(list(LIMITS))
    number, values = LIMITS[name]
    value = t.rng.choice(values)
    t.detail += f" {name} {value},"
    process = t.start()
    t.at_random_moment(process, ("step", "step", "save"))  # at the start, MPI itself fails without a line of ours
    for pid in t.rank_pids().values():
        try:
            resource.prlimit(pid, number, (value, value))
        except (ProcessLookupError, PermissionError):
            pass
    # 2: an allocation failed, and the message advises a smaller micro-batch
    code = t.expect(process, (0, 1, 2, 3, 5) if name == "address space" else (0, 1, 3, 5), limit=60)
    t.compare() if code == 0 else t.resume()
