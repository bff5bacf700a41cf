// oneDNN's OpenMP on the threads of this program: see openmp_entry_points.cpp.
#pragma once

namespace millrace::cpu {

// Does nothing, but makes the linker take the entry points from this program.
void use_own_openmp_entry_points();

}  // namespace millrace::cpu
