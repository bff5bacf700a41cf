"""Tests other_work.py, without PyTorch."""
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import other_work


def watch_of(readings):
    """Watches with made up readings: (seconds, busy, own) at the begin and at the end of each measurement, on two cores."""
    readings = iter(readings)

    def make():
        begin, end = next(readings), next(readings)
        series = [iter(pair) for pair in zip(begin, end)]
        return other_work.Watch(busy=lambda: next(series[1]), own=lambda: next(series[2]), clock=lambda: next(series[0]), cores={0, 1})

    return make


class OtherWork(unittest.TestCase):
    def test_share_is_what_is_neither_idle_nor_own(self):
        with watch_of([(0, 100, 10), (10, 118, 26)])() as watch:  # 18 s busy, 16 s own, of 20
            pass
        self.assertAlmostEqual(watch.share, (2 - 4 / other_work.TICK) / 20)
        self.assertTrue(watch.disturbed)
        with watch_of([(0, 100, 10), (10, 118, 27.5)])() as watch:
            pass
        self.assertFalse(watch.disturbed)

    def test_a_disturbed_measurement_is_made_once_more(self):
        quiet, busy = [(0, 0, 0), (10, 20, 20)], [(0, 0, 0), (10, 20, 5)]
        for readings, calls, share in ((quiet, 1, 0), (busy + quiet, 2, 0), (busy + busy, 2, 0.748)):
            made = []
            result, other = other_work.measured_twice(lambda: made.append(1) or len(made), watch_of(readings))
            self.assertEqual(len(made), calls)
            self.assertEqual(result, calls)
            self.assertAlmostEqual(other, share)

    def test_the_less_disturbed_of_two_counts(self):
        result, other = other_work.measured_twice(iter("ab").__next__, watch_of([(0, 0, 0), (10, 20, 15), (0, 0, 0), (10, 20, 5)]))
        self.assertEqual(result, "a")
        self.assertAlmostEqual(other, 0.248)

    def test_reads_what_the_kernel_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            proc = pathlib.Path(folder)
            tick = other_work.TICK
            (proc / "stat").write_text(f"cpu 9 9 9\ncpu0 {tick} 0 {tick} 500 7 0 0 {tick} 0 0\ncpu1 {tick} 0 0 0 0 0 0 0 0 0\ncpu2 {9 * tick} 0 0 0 0 0 0 0 0 0\n")
            self.assertEqual(other_work.busy_seconds({0, 1}, proc), 4)
            # 7 is the process, 8 its child with a name that is hard to read, 9 a child of that, 10 somebody else's
            for pid, parent, name, ticks in ((7, 1, "python", (1, 2, 3, 4)), (8, 7, "a) R (b", (1, 0, 0, 0)), (9, 8, "c", (0, 1, 0, 0)), (10, 1, "d", (50, 0, 0, 0))):
                (proc / str(pid)).mkdir()
                times = " ".join(str(tick * t) for t in ticks)
                (proc / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {times} 20 0 1 0\n")
            self.assertEqual(other_work.own_seconds(7, proc), 12)

    def test_own_work_is_not_other_work(self):
        spin = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
        before = other_work.own_seconds()
        subprocess.run([sys.executable, "-c", spin], check=True)  # has ended
        self.assertGreater(other_work.own_seconds() - before, 0.2)
        before = other_work.own_seconds()
        with subprocess.Popen([sys.executable, "-c", spin + "\nprint(flush=True)\ninput()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            child.stdout.readline()  # still lives
            self.assertGreater(other_work.own_seconds() - before, 0.2)
            child.communicate(b"\n")

    def test_the_report_calls_no_disturbed_row_measured(self):
        row = {"name": "ResNet", "precision": "fp32", "ranks": 2, "threads": 1, "millrace": 1200, "pytorch": 1000, "ratio": 1.2, "goal": 1.3, "pytorch_way": "eager"}
        beside_neighbour = {"name": "single layer", "precision": "fp32", "ranks": 1, "threads": 2, "alone": 1000, "beside": 350, "ratio": 0.35, "goal": 0.4}
        rows = [dict(row, other_work=0.01), dict(row, name="U-Net", other_work=0.2), beside_neighbour, dict(beside_neighbour, name="ViT", other_work=0.3)]
        text = other_work.report(rows, "make peers", "PyTorch 2", datetime.datetime(2026, 11, 27, 22, 5))
        self.assertIn("2026-11-27 22:05", text)
        self.assertIn("| ResNet | fp32 | 2 x 1 | 1,200 | 1,000 | 1.20 | 1.3, missed | eager |", text)
        self.assertNotIn("| U-Net", text)
        self.assertIn("| single layer | fp32 | 1 x 2 | 1,000 | 350 | 35% | 40%, missed |", text)
        self.assertNotIn("| ViT", text)
        self.assertIn("- ViT, fp32, 1 x 2: other work had 30%", text)
        self.assertIn("- U-Net, fp32, 2 x 1: other work had 20%", text)
        scaling = {"name": "perceptron", "precision": "fp32", "ranks": 2, "threads": 1, "weak": 0.83, "strong": 0.6, "goal": 0.85, "alone_ms": 11.8,
                   "weak_ms": 14.2, "strong_ms": 9.8}
        text = other_work.report([scaling, dict(scaling, name="GPT", goal=None), dict(scaling, name="ViT", other_work=0.3)], "make peers", "PyTorch 2")
        self.assertIn("| perceptron | 83.0% | 85%, missed | 60.0% | 11.80 | 14.20 | 9.80 |", text)
        self.assertIn("| GPT | 83.0% |  | 60.0% |", text)
        self.assertIn("- ViT, fp32, 2 x 1, scaling: other work had 30%", text)
        self.assertIn("No row was measured", other_work.report(rows[1:2], "make peers", "PyTorch 2"))
        self.assertNotIn("No row was measured", other_work.report(rows[1:], "make peers", "PyTorch 2"))
        self.assertNotIn("Disturbed", other_work.report(rows[:1], "make peers", "PyTorch 2"))


if __name__ == "__main__":
    os.chdir(pathlib.Path(__file__).parent)
    unittest.main()
