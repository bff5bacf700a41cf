// DType <-> HDF5 types.
#pragma once
#include <hdf5.h>

#include <string>

#include "millrace/base/types.hpp"

namespace millrace::io {

// The native type of a DType; lives as long as the library. f16 and bf16 are described field by field: HDF5 has names
// for them only from 1.14.4 on.
hid_t native_type(DType);

struct TypeInfo {
  DType dtype = DType::u8;
  bool big_endian = false;
  std::string refusal;  // why no DType stands for it, or empty
};
TypeInfo describe_type(hid_t type);

}  // namespace millrace::io
