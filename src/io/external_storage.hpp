// Checks of data sets whose values lie in other files. HDF5 silently returns zeros or the fill value if such a file is
// missing, so it is checked before. Private to the io room.
#pragma once
#include <hdf5.h>

#include <string>

namespace millrace::io {

// Why a virtual data set of the file `path` cannot be read completely; "" if it can. Raises the limit of open files for
// its sources.
std::string virtual_dataset_problem(hid_t dcpl, const std::string& path);
// The same for a data set in external files. Sets relative_to_file if their names are relative to the folder of `path`
// instead of the working directory.
std::string external_storage_problem(hid_t dcpl, const std::string& path, bool& relative_to_file);

}  // namespace millrace::io
