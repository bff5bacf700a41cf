// MR_TARGET_CLONES compiles a free function for the baseline instruction set, for AVX2 with FMA and for AVX-512. The
// best version is chosen when the program is loaded. Use it for functions that loop over a range, but not for templates
// or functions with an OpenMP pragma. Builds with sanitizers only have the baseline, because the choice is made before
// the sanitizer's runtime is initialized. The targets are x86-64 levels: a model such as "arch=haswell" would be chosen
// on this model only.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define MR_TARGET_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define MR_TARGET_CLONES
#endif
