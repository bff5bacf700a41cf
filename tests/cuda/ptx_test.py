# What nvcc makes of the kernels that are bound by memory: wide loads and stores, no spilled registers, few enough
# registers for the blocks that should be resident, and no division by 64-bit numbers. No device is needed.
# Usage: ptx_test.py NVCC SOURCE_DIR KERNELS...: names of files in src/cuda/kernels
#
# The kernels of all types have the same source, so most files are compiled for float16 only, which is quicker.
import os
import re
import subprocess
import sys
import tempfile

nvcc, source, names = sys.argv[1], sys.argv[2], sys.argv[3:]

# By file, a pattern for the name of a kernel: accesses of 16 bytes that it must have at least (loads, stores).
# Where elements of 16 bits become float32 or the reverse, one of the two accesses has 8 bytes.
WIDE = {
    "activation": {r"VectorizedLoopILi8ENS.*8Activate": (1, 1), r"VectorizedLoopILi8ENS.*ActivationGradient": (2, 1)},
    "add": {"AddElements": (2, 1), "CopyTwice": (1, 2)},
    "attention/attention": {r"Forward.*f16ELi8": (3, 0), r"QueryGradients.*f16ELi8": (5, 0), r"KeyGradients.*f16ELi8": (6, 0),
                            "WriteSeed": (0, 0)},
    "attention/cached_attention": {"StoreInCache": (0, 0), "AttendToCache": (0, 0)},
    "batch_norm": {"Normalise[IN]": (1, 1), "8Gradient[IN]": (1, 1), "ResidentForward": (1, 1), "ResidentBackward": (2, 1)},
    "bias": {r"AddBias.*Li8E": (1, 1)},
    "channels": {r"CopyChannels.*Li4E": (0, 0)},
    "column_sums": {r"SumColumns.*3f16ELi8E": (1, 0)},
    "convert": {r"VectorizedLoopILi8E.*Convert": (1, 1), r"VectorizedLoopILi4E.*Add": (1, 1)},
    "cross_entropy": {r"CrossEntropyRow.*Li8E": (2, 1), "CrossEntropyOfFewClasses": (0, 0), "SumDice": (0, 0), "AddDiceGradient": (0, 0)},
    "depthwise/depthwise": {"ConvolveRows": (0, 0), "ConvolvePixels": (0, 0), "MultiplyRows": (0, 0), "MultiplyTap": (0, 0)},
    "dropout": {r"DropoutForward": (1, 1), "ApplySavedMask": (1, 1)},
    "merged_norm/dual_norm": {"NormaliseBothI": (2, 1), "BothGradientSumsI": (3, 0), "GradientOfBothI": (3, 2)},
    "tokens/embedding": {r"EmbeddingLookup.*Li8E": (1, 1), r"EmbeddingGradient.*Li8E": (4, 2)},
    "input": {"NormalizeAugmented": (0, 1), r"VectorizedLoopILi8E.*NormalizeContiguous": (0, 1)},
    "pointwise_loss": {r"LossPart.*Li8E": (1, 1)},
    "move_labels": {"MoveLabelsKernel": (0, 0)},
    "merged_norm/norm_pool": {r"NormaliseMax.*Li8E": (1, 2), "PooledGradientSumsI": (2, 0), r"14PooledGradientI.*Li8E": (2, 1)},
    "optimizer/optimizer": {"LambMoments": (3, 2), "AdvanceMuon": (2, 2), "CollectMuon": (1, 1), "NormaliseMuon": (1, 1), r"Update.*MuonStep": (2, 1), r"Update.*AdamW": (3, 2), r"Update.*Lamb[^M]": (2, 1),
                  r"Update.*SgdPlain": (2, 1), r"Update.*SgdMomentum": (3, 2)},
    "pool/pool": {r"GlobalForward.*Li8E": (1, 0), r"MaxForward.*Li8E": (1, 1), r"AverageForward.*Li8E": (1, 1),
                  r"8Backward.*Li8E": (1, 1)},
    "blocks": {r"MovePart.*Li8E": (1, 1)},
    "pool/upsample": {r"UpsampleForward.*Li8E": (1, 1), r"UpsampleBackward.*Li8E": (1, 1)},
    "rows/gather": {r"GatherBlocks.*Li8E": (1, 1), r"SumCopies.*Li8E": (1, 1)},
    "rows/constants": {r"VectorizedLoopILi8ENS.*MultiplyAdd": (1, 1), r"MultiplyAddEntries.*Li8E": (1, 1), r"AddEntries.*Li8E": (1, 1),
                       "SumPositions": (0, 0), r"VectorizedLoopILi8ENS.*5PowerI": (1, 1), r"VectorizedLoopILi8ENS.*PowerGradient": (2, 1)},
    "rows/group_norm": {r"RowSums.*MomentTerms.*Li8E": (5, 4), r"RowSums.*GradientTerms.*Li8E": (4, 4), r"9Normalise.*Li8E": (1, 1),
                        r"8Gradient.*Li8E": (2, 1)},
    "rows/mix": {"MixRows.*Li8E": (2, 1)},
    "rows/prelu": {r"PreluForward.*Li8E": (1, 1), r"PreluBackward.*Li8E": (2, 1)},
    "rows/scale_by": {r"ScaleByFactor.*Li8E": (2, 1), r"RowSums.*Li8E": (8, 2)},
    "tokens/documents": {"FindStarts": (0, 0), "CountTokens": (0, 0), "MarkLast": (0, 0)},
    "tokens/gated": {r"GatedForward.*Li8E": (2, 1), r"GatedBackward.*Li8E": (3, 2)},
    "tokens/plain_recurrent": {r"PlainStep.*Li4E": (4, 1), r"PlainGradient.*Li4E": (2, 0)},
    "tokens/position_embedding": {r"AddPositions.*Li8E": (2, 1), r"DropToken.*Li8E": (1, 1)},
    "tokens/recurrent": {r"GateStep.*Li4E": (16, 6), r"GateGradient.*Li4E": (8, 1), r"StepRows.*Li8E": (1, 1)},
    "tokens/rotary": {r"Rotate.*Li8E": (2, 2)},
    "tokens/softmax": {r"SoftmaxForward.*Li8E": (3, 1), r"SoftmaxBackward.*Li8E": (4, 1)},
    "tokens/scale": {r"ScaleForward.*Li8E": (2, 1), r"ScaleBackward.*Li8E": (2, 1)},
}
# By file, a pattern for the name of a kernel, and what its code must contain: the last block sees what all have written.
ADDS_UP = (r"membar\.gl|fence\.\S*gpu", r"atom\S*\.inc\.u32")
CONTAINS = {"batch_norm": dict.fromkeys(("10Statistics", "12GradientSums", "Resident(?:For|Back)ward"), ADDS_UP),
            "merged_norm/dual_norm": dict.fromkeys(("10Statistics", "BothGradientSumsI"), ADDS_UP),
            "merged_norm/norm_pool": dict.fromkeys(("10Statistics", "PooledGradientSumsI"), ADDS_UP)}
# Instructions of PTX, for kernels whose loops are limited by arithmetic rather than memory otherwise.
INSTRUCTIONS = {r"NormalizeAugmented.*StoredValuesIh.*CropFlipELi4E": 2500, r"NormalizeAugmented.*StoredValuesIh.*ELi8E": 2500,
                r"VectorizedLoopILi8E.*NormalizeContiguous": 700}
DIVIDES = {"batch_norm", "merged_norm/dual_norm", "merged_norm/norm_pool", "column_sums", "pointwise_loss", "channels",
           "dropout"}  # 64-bit numbers, before a loop
SPILLED_BYTES = {"attention/attention": 16, "batch_norm": 16, "merged_norm/dual_norm": 20, "merged_norm/norm_pool": 16}
ALL_TYPES = {"batch_norm", "merged_norm/dual_norm"}
NARROW_STORES_OF_A_TAIL = 9  # a pack that is not whole is stored by elements
REGISTERS = 65536            # of a multiprocessor
STACK_FRAME = 32             # bytes

# Replaces cuda/block/dispatch_dtype.hpp.
FLOAT16_ONLY = """#pragma once
#include "millrace/base/dispatch_dtype.hpp"
#include "millrace/base/types.hpp"
namespace millrace::cuda {
template <class Body>
decltype(auto) dispatch_dtype(DType, const Body& body) {
  return body(f16{});
}
}  // namespace millrace::cuda
"""


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}\n{done.stderr}")
    return done.stdout + done.stderr


def compile_kernels(name, folder):
    ptx = os.path.join(folder, "kernels.ptx")
    if name not in ALL_TYPES:
        header = os.path.join(folder, "cuda", "block", "dispatch_dtype.hpp")
        os.makedirs(os.path.dirname(header))
        with open(header, "w") as file:
            file.write(FLOAT16_ONLY)
    toolkit = os.path.dirname(os.path.dirname(os.path.realpath(nvcc)))
    run(nvcc, "-ptx", "-arch=compute_90", "-O3", "-DNDEBUG", "-std=c++20", "--expt-relaxed-constexpr",
        "-DFMT_USE_CONSTEXPR=1", f"-I{folder}", f"-I{source}/include", f"-I{source}/src", f"-I{toolkit}/include",
        f"{source}/src/cuda/kernels/{name}.cu", "-o", ptx)
    report = run(os.path.join(os.path.dirname(nvcc), "ptxas"), "-v", "-arch=sm_90", ptx, "-o", os.devnull)
    return open(ptx).read(), report


def check_accesses(name, ptx):
    problems, seen = [], set()
    for kernel, body in re.findall(r"\.entry (\S+?)\((.*?)\n\}", ptx, re.S):
        divisions = len(re.findall(r"\b(?:div|rem)\.[su]64", body))
        if divisions > 0 and name not in DIVIDES:
            problems.append(f"{kernel}: {divisions} divisions of 64-bit numbers")
        instructions = len(re.findall(r"^\s+(?:@\S+ )?[a-z][\w.]*\s[^\n]*;$", body, re.M))
        for pattern, limit in INSTRUCTIONS.items():
            if re.search(pattern, kernel) and instructions > limit:
                problems.append(f"{kernel}: {instructions} instructions")
        problems += [f"{kernel} {problem}" for problem in check_dependency(body)]
        for pattern, contents in CONTAINS.get(name, {}).items():
            if re.search(pattern, kernel):
                seen.add(pattern)
                problems += [f"{kernel} has no {c}" for c in contents if not re.search(c, body)]
        kind = next((k for k in WIDE[name] if re.search(k, kernel)), None)
        if kind is None:
            continue
        seen.add(kind)
        loads, stores = (len(re.findall(access + r"\.global\S*\.v4\.[bfu]32", body)) for access in ("ld", "st"))
        narrow = len(re.findall(r"st\.global\S*\.[ub]16", body))
        if (loads, stores) < WIDE[name][kind] or stores < WIDE[name][kind][1]:
            problems.append(f"{kernel}: {loads} loads and {stores} stores of 16 bytes, {narrow} stores of 2")
        if narrow > NARROW_STORES_OF_A_TAIL * max(1, stores):
            problems.append(f"{kernel}: {narrow} stores of 2 bytes")
    expected = [*WIDE[name], *CONTAINS.get(name, {})]
    return problems + [f"no kernel is called {kind}" for kind in expected if kind not in seen]


def check_dependency(body):
    """Whether a kernel that is launched before the one before it has ended waits for it (cuda/block/block.hpp)."""
    wait, access = body.find("griddepcontrol.wait"), re.search(r"\b(?:ld|st|atom|red)\S*\.global", body)
    if wait < 0 or (access and access.start() < wait):
        yield "does not wait for earlier kernels before it accesses memory"
    if "griddepcontrol.launch_dependents" not in body:
        yield "does not say when the next kernel may start"


# The name of a kernel has the most threads of a block and the blocks that should be resident.
def check_registers(name, report):
    problems = []
    found = re.findall(r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame.*?(\d+) bytes spill stores.*?Used (\d+) registers",
                       report, re.S)
    for kernel, frame, spilled, used in found:
        threads, blocks = map(int, re.search(r"block_kernelILi(\d+)ELi(\d+)E", kernel).groups())
        if int(spilled) > SPILLED_BYTES.get(name, 0):
            problems.append(f"{kernel} spills {spilled} bytes")
        if int(frame) > STACK_FRAME:
            problems.append(f"{kernel} has arrays of {frame} bytes in slow memory (indexed by a variable)")
        if int(used) > REGISTERS // (threads * blocks):
            problems.append(f"{kernel} uses {used} registers, so {blocks} blocks of {threads} threads do not fit")
    return problems if found else ["ptxas reports no registers"]


found = []
for name in names:
    with tempfile.TemporaryDirectory() as scratch:
        code, registers = compile_kernels(name, scratch)
    found += check_accesses(name, code) + check_registers(name, registers)
for problem in found:
    print("FAILED:", problem)
sys.exit(1 if found else 0)
