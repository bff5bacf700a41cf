// Conversion between DType and HDF5 types. Private to the io room.
#pragma once
#include <hdf5.h>

#include <string>

#include "millrace/base/types.hpp"

namespace millrace::io {

// The native type of a DType. It lives as long as the library. f16 and bf16 are described field by field: HDF5 has
// names for them only from 1.14.4 on. HDF5's conversions round to nearest even, but towards zero below the smallest
// normal half (6e-5). Values that must be exact are converted by their owner, with base's f16.
hid_t native_type(DType);

struct TypeInfo {
  DType dtype = DType::u8;
  bool big_endian = false;
  std::string unsupported_reason;  // why no DType can represent it; empty: one can
  bool uint32_as_int32 = false;    // unsupported as such, but its bits can be read as dtype i32
};
// converting: accept types that HDF5 has to convert, as i64 or f64.
TypeInfo describe_type(hid_t type, bool converting = false);

}  // namespace millrace::io
