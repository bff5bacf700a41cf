#!/usr/bin/env python3
"""Puts known defects back into src/, one in a program, and checks that a training on the simulated CUDA finds each.

A defect is a replacement in one source file. The file is compiled with the command of the build, with less optimization,
and linked before the libraries, so that it replaces the file without the defect. Two defects are worked on at a time.
Usage: defects.py SOURCE_DIR BUILD_DIR MPIEXEC [NAME...]
"""
import concurrent.futures
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from compile_commands import compile_commands

# name: file, text, replacement, case of training_test.sh or failures_test.sh, what its output must contain.
DEFECTS = {
    "watchdog queries a lane": ("src/cuda/nccl/watchdog_thread.cpp", "if (trouble.empty()) return \"\";\n",
                                "(void)cudaStreamQuery(device_.stream(Stream::comm));\n",
                                "captures", r"cudaStreamQuery on stream \d+: the stream is in a capture"),
    "stopped ranks are not looked for": ("src/comm/progress_board.cpp", "RankStatus out{watchdog::stopped_ranks_of_host(), late(number), {}};",
                                         "RankStatus out{{}, late(number), {}};", "stopped", r"no rank is known to be late"),
    "each host reports": ("src/cuda/nccl/watchdog_thread.cpp", "if (!board_->is_first_host(ranks) && !wait(head_start)) return \"\";\n", "",
                          "stopped", r"expected exactly 1 line.*error.*found [2-9]"),
    "a window is left": ("src/cuda/nccl/nccl_comm.cpp", "ncclCommWindowDeregister(c, region.window)", "ncclSuccess", "windows",
                         r"simulated CUDA: .*registered with the communicator|registrations are left"),
    "an event is left out": ("src/cuda/nccl/nccl_collective.cpp", "MR_CUDA(cudaStreamWaitEvent(comm, filled_, 0));", "",
                             "results", r"FAILED|simulated CUDA:"),
    "a fork is not joined": ("src/cuda/nccl/nccl_collective.cpp", "MR_CUDA(cudaStreamWaitEvent(compute, joined_, 0));", "",
                             "captures", r"was captured here and not joined|differs between ranks"),
    "a slot is reused too early": ("src/data/load/loader.cpp", "if (s.copied) s.copied->synchronize();", "", "slots", r"FAILED"),
    "a result is read too early": ("src/train/session/network_state.cpp", "  state_ready_[std::size_t(parity)]->synchronize();\n", "", "results", r"FAILED"),
    "an address of the host is recorded": ("src/train/session/network_state.cpp", "state_.data(), pushed_.as<StepState>() + parity,", "state_.data(), &host_state_,",
                                           "captures", r"a kernel cannot reach pageable memory"),
    "counters are not zero before the first kernel": ("src/cuda/runtime/device.cpp", "cudaMemsetAsync(memory, 0, padded,", "cudaMemsetAsync(memory, 1, padded,",
                                                      "synchronised", r"FAILED"),
    "the host reads memory of the device": ("src/cuda/kernels/optimizer/optimizer.cu", "PrepareStep{sums, all_, args.state,",
                                        "PrepareStep{sums, all_, new StepState(*args.state),", "results", r"the host: touches"),
}


def compile_mutated(build, source, text, scratch):
    """The object of the source with another text, and the output of the build that it replaces. It includes what the
    source includes by name."""
    # The kernels have two commands: that of the host comes from the tests.
    tests = source.suffix == ".cu"
    command = next(c for c in compile_commands(build) if c.source == source and c.output.startswith("tests/") == tests)
    mutated = scratch / ("mutated" + source.suffix)
    mutated.write_text(text)
    if command.unity:
        together = scratch / "together.cpp"
        together.write_text(command.unity.read_text().replace(f'"{source}"', f'"{mutated}"'))
    output = scratch / "mutated.o"
    words = [w for w in command.words if w != "-MD"] + ["-O1"]
    words[words.index("-o") + 1] = str(output)
    words[words.index("-c") + 1] = str(together if command.unity else mutated)
    for flag in ("-MT", "-MF"):
        if flag in words:
            del words[words.index(flag):words.index(flag) + 2]
    subprocess.run(words, cwd=command.directory, check=True)
    return output, command.output


def link(build, replaced, obj, program):
    """Links the program with this object in place of the output `replaced`."""
    target = "tests/simulated_cuda/millrace_simulated"
    line = subprocess.run(["ninja", "-C", str(build), "-t", "commands", "-s", target], check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    line = line.partition("&&")[2].rpartition("&&")[0].strip()
    words = [w for w in shlex.split(line) if w != replaced]
    words[words.index("-o") + 1] = str(program)
    words.insert(words.index("-o"), str(obj))
    subprocess.run(words, cwd=build, check=True)


TRIES = 3  # some defects show only if two processes come at the same moment


def found(tests, program, mpiexec, case, expected):
    script = "failures_test.sh" if case in ("captures", "stopped", "windows") else "training_test.sh"
    # Open MPI 4 may let one of two programs fail that start at the same moment and share a folder of sessions.
    environment = dict(os.environ, OMPI_MCA_orte_tmpdir_base=str(program.parent))
    done = subprocess.run([str(tests / script), str(program), mpiexec, case], env=environment, capture_output=True, text=True,
                          timeout=300, check=False)
    output = done.stdout + done.stderr
    return done.returncode != 0 and re.search(expected, output), output


def try_defect(source, build, mpiexec, name):
    """Whether the training finds the defect, and its last output."""
    file, old, new, case, expected = DEFECTS[name]
    text = (source / file).read_text()
    if text.count(old) != 1:
        sys.exit(f"{name}: {file} has {text.count(old)} places with: {old}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        obj, replaced = compile_mutated(build, source / file, text.replace(old, new), scratch)
        program = scratch / "millrace_simulated"
        link(build, replaced, obj, program)
        for _ in range(TRIES):
            right, output = found(source / "tests" / "simulated_cuda", program, mpiexec, case, expected)
            if right:
                break
    return right, output


def main():
    source, build, mpiexec = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve(), sys.argv[3]
    names = sys.argv[4:] or list(DEFECTS)
    if unknown := set(names) - set(DEFECTS):
        sys.exit(f"no such defect: {', '.join(sorted(unknown))}. there are: {', '.join(DEFECTS)}")
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, (right, output) in zip(names, pool.map(lambda name: try_defect(source, build, mpiexec, name), names)):
            print(f"{name}: {'found' if right else 'NOT FOUND'}", flush=True)
            if not right:
                missed += 1
                print(output[-3000:])
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
