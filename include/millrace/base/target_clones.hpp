// MR_CLONES, on a free function: compiled for the baseline, AVX2+FMA and AVX-512, the best one chosen when the program
// loads. Put it on the inner loop over a range (not on a template, nor on a function with an omp pragma). Instrumented
// builds run the baseline: their runtime is not up yet when the choice is made. Levels, not models: "arch=haswell"
// would be chosen on a Haswell alone.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define MR_TARGET_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define MR_TARGET_CLONES
#endif
