// The kinds of source, one maker each. Private to the data room.
#pragma once
#include <memory>

#include "millrace/data/source.hpp"

namespace millrace {

std::unique_ptr<Source> make_direct_source(const ShardIndex&);
std::unique_ptr<Source> make_hdf5_source(World&, const ShardIndex&, bool through_mpi);
// Native byte order for x; stored labels or targets -> int32 or float32.
void finish_rows(const ShardIndex&, std::size_t rows, void* x, void* y_stored, void* y);

}  // namespace millrace
