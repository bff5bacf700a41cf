# What nvcc makes of the kernels that are bound by memory: wide stores, no spilled registers, and enough blocks on a
# multiprocessor. No device is needed.
# Usage: ptx_test.py NVCC SOURCE_DIR batch_norm|input
import os
import re
import subprocess
import sys
import tempfile

nvcc, source, name = sys.argv[1:4]
# By the name of a kernel functor: the wide stores that it must have at least, and the registers that it may have.
WIDE = {"batch_norm": {"Normalise": 1, "8Gradient": 1}, "input": {"NormalizeAugmented": 1, "NormalizeContiguous": 1}}
REGISTERS = {"batch_norm": 64, "input": 64}  # 4 blocks of 256 threads
SPILLED_BYTES = 16
NARROW_STORES_OF_A_TAIL = 8  # a pack that is not whole is stored by elements


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}\n{done.stderr}")
    return done.stdout + done.stderr


def compile_kernels(folder):
    ptx = os.path.join(folder, "kernels.ptx")
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    run(nvcc, "-ptx", "-arch=compute_90", "-O3", "-DNDEBUG", "-std=c++20", "--expt-relaxed-constexpr",
        "-DFMT_USE_CONSTEXPR=1", f"-I{source}/include", f"-I{source}/src", f"-I{toolkit}/include",
        f"{source}/src/cuda/kernels/{name}.cu", "-o", ptx)
    report = run(os.path.join(os.path.dirname(nvcc), "ptxas"), "-v", "-arch=sm_90", ptx, "-o", os.devnull)
    return open(ptx).read(), report


def check_stores(ptx):
    problems, seen = [], set()
    for kernel, body in re.findall(r"\.entry (\S+?)\((.*?)\n\}", ptx, re.S):
        kind = next((k for k in WIDE[name] if re.search(k + r"[IN]", kernel)), None)
        if kind is None or ("Contiguous" in kernel and re.search(r"Id[fN]", kernel)):  # doubles: packs of two
            continue
        seen.add(kind)
        wide = len(re.findall(r"st\.global\S*\.v4", body))
        narrow = len(re.findall(r"st\.global\S*\.[ub]16", body))
        if wide < WIDE[name][kind]:
            problems.append(f"{kernel}: {wide} stores of 16 bytes, {narrow} of 2")
        if narrow > NARROW_STORES_OF_A_TAIL * max(1, wide):
            problems.append(f"{kernel}: {narrow} stores of 2 bytes")
    return problems + [f"no kernel is called {kind}" for kind in WIDE[name] if kind not in seen]


def check_registers(report):
    problems = []
    for kernel, spilled, used in re.findall(
            r"Compiling entry function '(\S+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", report, re.S):
        if int(spilled) > SPILLED_BYTES:
            problems.append(f"{kernel} spills {spilled} bytes")
        if int(used) > REGISTERS[name]:
            problems.append(f"{kernel} uses {used} registers")
    if "registers" not in report:
        problems.append("ptxas reports no registers")
    return problems


with tempfile.TemporaryDirectory() as scratch:
    code, registers = compile_kernels(scratch)
found = check_stores(code) + check_registers(registers)
for problem in found:
    print("FAILED:", problem)
sys.exit(1 if found else 0)
