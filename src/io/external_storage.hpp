// Data sets whose values lie in other files. HDF5 hands out zeros or the fill value for what is missing there, and says
// nothing; so it is looked for before. Private to the room.
#pragma once
#include <hdf5.h>

#include <string>

namespace millrace::io {

// Why a virtual data set of `path` would not be read whole, in words for a refusal, or "". Leaves room for its sources
// among the open files.
std::string virtual_dataset_problem(hid_t dcpl, const std::string& path);
// The same of one in external files. from_here: their names count from the file's folder, not from the working one.
std::string external_storage_problem(hid_t dcpl, const std::string& path, bool& relative_to_file);

}  // namespace millrace::io
