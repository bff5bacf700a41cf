# Compiles every file of src/cuda with the CUDA toolkit in a folder, for one architecture: .cu files with its nvcc, .cpp
# files with the build's compiler (syntax only). Flags are those of the build. cuDNN and NCCL are those of the build too.
# Usage: compile_cuda_12.py SOURCE_DIR BUILD_DIR TOOLKIT
import concurrent.futures
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "support"))
from compile_commands import compile_commands

source, build, toolkit = (os.path.realpath(folder) for folder in sys.argv[1:4])
OTHER_HEADERS = os.path.join(os.path.dirname(toolkit), "others")
# The device code as PTX, without ptxas and the host code, which take two thirds of the time. Its compiler also checks the
# host code.
PTX_ONLY = ["-ptx", "-O0", "-Xcicc", "-O0"]
LINES_OF_A_FILE = 12  # that are printed; an error in a header repeats itself
PROBE = """#include <cublas_v2.h>
#include <cuda_runtime.h>
static_assert(CUDART_VERSION / 1000 == 12 && CUBLAS_VER_MAJOR == 12 && __CUDACC_VER_MAJOR__ == 12);
"""


def link_other_headers():
    """The headers of cuDNN and NCCL may lie beside those of the build's toolkit, so they get a folder of their own."""
    cache = open(os.path.join(build, "CMakeCache.txt")).read()
    os.makedirs(OTHER_HEADERS, exist_ok=True)
    for library in ("cudnn", "nccl"):
        folder = re.search(rf"^{library.upper()}_INCLUDE:PATH=(.*)$", cache, re.M).group(1)
        for header in glob.glob(os.path.join(folder, library + "*")):
            link = os.path.join(OTHER_HEADERS, os.path.basename(header))
            if os.path.lexists(link):
                os.remove(link)
            os.symlink(os.path.realpath(header), link)


def build_flags(words):
    """The compiler and the flags of a command of the build, without its toolkit, precompiled headers and outputs."""
    compiler, *words = words
    flags, words = [], iter(words)
    for word in words:
        if word in ("-include", "-o"):
            next(words)
        elif word == "-isystem" or word.startswith("-isystem="):
            folder = next(words) if word == "-isystem" else word.removeprefix("-isystem=")
            if not os.path.exists(os.path.join(folder, "cuda_runtime.h")):
                flags += ["-isystem", folder]
        elif word == "-c":
            next(words)
        elif word != "-Winvalid-pch" and not re.match(r"--generate-code=|-arch|-O\d$|-Xcompiler", word):
            flags.append(word)
    return compiler, flags + ["-isystem", os.path.join(toolkit, "include"), "-isystem", OTHER_HEADERS]


def commands_of_build():
    """By file name: compiler and flags. Second, by file name: the file that the build compiles, which may include several.
    The tests compile some of the files again, in another way."""
    found, compiled = {}, {}
    for command in compile_commands(build):
        file = str(command.source)
        if file.startswith(source + "/src/cuda/") and not command.output.startswith("tests/"):
            found[file] = build_flags(command.words)
            compiled[file] = str(command.unity or file)
    return found, compiled


def compile_file(file, command, host_compiler):
    compiler, flags = command
    if file.endswith(".cu"):
        words = [os.path.join(toolkit, "bin", "nvcc"), "-ccbin", host_compiler, *flags, *PTX_ONLY, "-arch=compute_90",
                 file, "-o", os.path.join(os.path.dirname(toolkit), os.path.basename(file) + ".ptx")]
    else:
        words = [compiler, *flags, "-fsyntax-only", file]
    return subprocess.run(words, cwd=build, capture_output=True, text=True)


def main():
    link_other_headers()
    known, compiled = commands_of_build()
    by_kind = {os.path.splitext(file)[1]: command for file, command in known.items()}
    if ".cu" not in by_kind or ".cpp" not in by_kind:
        sys.exit(f"FAILED: {build} has no CUDA backend")
    host_compiler = by_kind[".cpp"][0]
    probe = os.path.join(os.path.dirname(toolkit), "probe.cu")
    open(probe, "w").write(PROBE)
    done = compile_file(probe, by_kind[".cu"], host_compiler)
    if "unsupported GNU version" in done.stderr or "unsupported clang version" in done.stderr:
        print(f"skipped: CUDA 12.4 does not support the compiler {host_compiler}")
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"FAILED: a file that includes only the headers of the toolkit\n{done.stderr}")

    files = {}  # by the file that is compiled: its sources
    for kind in (".cu", ".cpp"):
        for file in glob.glob(f"{source}/src/cuda/**/*{kind}", recursive=True):
            files.setdefault(compiled.get(file, file), []).append(file)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", 2))) as pool:
        # A file that this build leaves out is compiled with the flags of another one.
        jobs = {file: pool.submit(compile_file, file, known.get(sources[0], by_kind[os.path.splitext(sources[0])[1]]), host_compiler)
                for file, sources in sorted(files.items())}
        for file, job in jobs.items():
            if job.result().returncode != 0:
                failed += len(files[file])
                print(f"FAILED: {' '.join(files[file])}\n" + "\n".join(job.result().stderr.splitlines()[:LINES_OF_A_FILE]), flush=True)
    count = sum(map(len, files.values()))
    print(f"{count - failed} of {count} files of src/cuda compile with CUDA 12")
    sys.exit(1 if failed else 0)


main()
