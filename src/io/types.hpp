// DType <-> HDF5 types.
#pragma once
#include <hdf5.h>

#include <string>

#include "millrace/base/types.hpp"

namespace millrace::io {

// The native type of a DType; lives as long as the library. f16 and bf16 are described field by field: HDF5 has names
// for them only from 1.14.4 on. Its conversions round to nearest even, but towards zero below the smallest normal half
// (6e-5): what must be exact is converted by its owner, with base's f16.
hid_t native_type(DType);

struct TypeInfo {
  DType dtype = DType::u8;
  bool big_endian = false;
  std::string unsupported_reason;  // why no DType stands for it, or empty
  bool uint32_as_int32 = false;    // refused; dtype is i32, of the same bits
};
// converting: of what HDF5 has to convert the DType that holds it, i64 or f64.
TypeInfo describe_type(hid_t type, bool converting = false);

}  // namespace millrace::io
