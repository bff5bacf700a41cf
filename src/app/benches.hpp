// Benchmarks that bench_command.cpp lists and another file implements.
#pragma once
#include "millrace/config/arguments.hpp"

namespace millrace::app {

inline Flag repeats_flag() { return {"repeats", "N", "repeats of each measurement", Flag::Arity::one, "15"}; }

std::vector<Flag> loader_flags();
Exit loader_bench(World&, const Arguments&);
std::vector<Flag> storage_flags();
Exit storage_bench(World&, const Arguments&);

}  // namespace millrace::app
