// MR_CLONES: compile a hot loop for several instruction sets and choose when the program starts. The thread sanitizer
// cannot run before its own start, where the choice is made.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define MR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MR_CLONES
#endif
