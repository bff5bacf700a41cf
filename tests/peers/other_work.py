"""How much of the cores other work had during a measurement: what /proc/stat counts on the cores that this process may use, less the processor time of
this process and its descendants. `measured_twice` repeats a disturbed measurement once; `report` writes the dated report."""
import datetime
import os
import pathlib
import time

LIMIT = 0.05
TICK = os.sysconf("SC_CLK_TCK")


def busy_seconds(cores, proc=pathlib.Path("/proc")):
    """Of these cores together, since the host started; what the hypervisor gave to other machines counts as busy."""
    total = 0
    for line in (proc / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name[:3] == "cpu" and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _, _, irq, softirq, steal = map(int, (fields + ["0"] * 8)[:8])
            total += user + nice + system + irq + softirq + steal
    return total / TICK


def own_seconds(pid=None, proc=pathlib.Path("/proc")):
    """Processor time of the process and of all its descendants, also of those that have ended and were waited for."""
    times, parents = {}, {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()  # a name may contain spaces and brackets
        except OSError:  # it has ended
            continue
        parents[int(folder.name)] = int(fields[1])
        times[int(folder.name)] = sum(map(int, fields[11:15])) / TICK  # user and system, of itself and of its dead children
    wanted = pid or os.getpid()

    def is_own(one):
        while one not in (wanted, 0) and one in parents:
            one = parents[one]
        return one == wanted

    return sum(seconds for one, seconds in times.items() if is_own(one))


class Watch:
    """with Watch() as watch: ...; then watch.share: other work's part of the cores."""

    def __init__(self, busy=None, own=None, clock=time.monotonic, cores=None):
        self.cores = os.sched_getaffinity(0) if cores is None else cores
        self.busy, self.own, self.clock = busy or (lambda: busy_seconds(self.cores)), own or own_seconds, clock
        self.share = 0

    def __enter__(self):
        self.began = self.clock(), self.busy(), self.own()
        return self

    def __exit__(self, *_):
        seconds, busy, own = (now - then for now, then in zip((self.clock(), self.busy(), self.own()), self.began))
        ticks = 2 / TICK * len(self.cores)  # of a core's count and of a process's
        self.share = max(0, busy - own - ticks) / max(1e-9, seconds * len(self.cores))

    @property
    def disturbed(self):
        return self.share > LIMIT


def measured_twice(measure, watch=Watch):
    """What measure() returns, and other work's share of the cores meanwhile. A disturbed measurement is made once more; the less disturbed one counts."""
    with watch() as first:
        result = measure()
    if not first.disturbed:
        return result, first.share
    print(f"  disturbed: other work had {first.share:.0%} of the cores. measured again", flush=True)
    with watch() as second:
        again = measure()
    return (again, second.share) if second.share <= first.share else (result, first.share)


def mark(share):
    """Behind a row."""
    return f"  DISTURBED: other work had {share:.0%} of the cores" if share > LIMIT else ""


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return "unknown processor"


def report(rows, command, facts, now=None):
    """The text of a report. rows: as in peers.json, with `other_work`. Disturbed ones have no place among the measured ones."""
    now = now or datetime.datetime.now(datetime.timezone.utc)
    head = ["| row | type | ranks x threads | millrace | PyTorch | ratio | goal | PyTorch's way |", "|---|---|---|---|---|---|---|---|"]

    def line(row):
        goal = row["goal"]
        met = "" if not goal else f"{goal}" if row["ratio"] >= goal else f"{goal}, missed"
        return (f"| {row['name']} | {row['precision']} | {row['ranks']} x {row['threads']} | {row['millrace']:,.0f} | {row['pytorch']:,.0f} | "
                f"{row['ratio']:.2f} | {met} | {row['pytorch_way']} |")

    def neighbour_line(row):
        met = f"{row['goal']:.0%}" + ("" if row["ratio"] >= row["goal"] else ", missed")
        return (f"| {row['name']} | {row['precision']} | {row['ranks']} x {row['threads']} | {row['alone']:,.0f} | {row['beside']:,.0f} | "
                f"{row['ratio']:.0%} | {met} |")

    def scaling_line(row):
        met = "" if not row["goal"] else f"{row['goal']:.0%}" + ("" if row["weak"] >= row["goal"] else ", missed")
        return f"| {row['name']} | {row['weak']:.1%} | {met} | {row['strong']:.1%} | {row['alone_ms']:.2f} | {row['weak_ms']:.2f} | {row['strong_ms']:.2f} |"

    tables = (("pytorch", [], head, line),
              ("weak", ["From one rank to two of one thread each, fp32; weak: as many samples for each rank, strong: in all. A step in ms:", ""],
               ["| row | weak | goal | strong | alone | weak, by two | strong, by two |", "|---|---|---|---|---|---|---|"], scaling_line),
              ("beside", ["millrace beside a loop that never sleeps on one of the cores:", ""],
               ["| row | type | ranks x threads | alone | beside | kept | goal |", "|---|---|---|---|---|---|---|"], neighbour_line))
    rows = [row for row in rows if any(key in row for key, *_ in tables)]
    quiet = [row for row in rows if row.get("other_work", 0) <= LIMIT]
    disturbed = [row for row in rows if row.get("other_work", 0) > LIMIT]
    text = [f"# Beside PyTorch, {now:%Y-%m-%d %H:%M} UTC", "", f"{processor()}, {len(os.sched_getaffinity(0))} cores; {facts}. samples/s, medians of alternating runs.", "",
            "```console", command, "```"]
    if not quiet:
        text += ["", "No row was measured without other work on the cores."]
    for key, above, columns, to_line in tables:
        if any(key in row for row in quiet):
            text += ["", *above, *columns] + [to_line(row) for row in quiet if key in row]
    if disturbed:
        text += ["", "## Disturbed", "", f"Other work had more than {LIMIT:.0%} of the cores, twice. These are no measurements.", ""]
        text += [f"- {row['name']}, {row['precision']}, {row['ranks']} x {row['threads']}{', scaling' * ('weak' in row)}: other work had {row['other_work']:.0%}"
                 for row in disturbed]
    return "\n".join(text) + "\n"
