#include "io/types.hpp"

#include <fmt/core.h>

#include "io/check.hpp"
#include "io/handle.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/value_table.hpp"

namespace millrace::io {
namespace {

struct FloatFields {
  DType dtype;
  std::size_t bytes, sign, exponent_at, exponent_bits, mantissa_bits, bias;
  bool operator==(const FloatFields&) const = default;
};
constexpr FloatFields half{DType::f16, 2, 15, 10, 5, 10, 15};
constexpr FloatFields brain{DType::bf16, 2, 15, 7, 8, 7, 127};
constexpr FloatFields single{DType::f32, 4, 31, 23, 8, 23, 127};
constexpr FloatFields wide{DType::f64, 8, 63, 52, 11, 52, 1023};

hid_t make_float16(const FloatFields& f) {
  const std::string where = name_of(f.dtype);
  Handle type(MR_H5(where, H5Tcopy(H5T_NATIVE_FLOAT)), H5Tclose);
  MR_H5(where, H5Tset_fields(type, f.sign, f.exponent_at, f.exponent_bits, 0, f.mantissa_bits));
  MR_H5(where, H5Tset_size(type, f.bytes));
  MR_H5(where, H5Tset_ebias(type, f.bias));
  return type.release();
}

TypeInfo describe_integer(hid_t type) {
  TypeInfo info;
  const std::size_t bytes = H5Tget_size(type);
  const bool is_signed = H5Tget_sign(type) == H5T_SGN_2;
  if (H5Tget_precision(type) != 8 * bytes || H5Tget_offset(type) != 0) {
    info.unsupported_reason =
        fmt::format("integers of {} bits within {} bytes are not supported", H5Tget_precision(type), bytes);
  } else if (bytes <= 2) {
    info.dtype = bytes == 1 ? (is_signed ? DType::i8 : DType::u8) : (is_signed ? DType::i16 : DType::u16);
  } else if (is_signed && (bytes == 4 || bytes == 8)) {
    info.dtype = bytes == 4 ? DType::i32 : DType::i64;
  } else {
    info.uint32_as_int32 = bytes == 4;
    if (info.uint32_as_int32) info.dtype = DType::i32;
    info.unsupported_reason =
        fmt::format("{} integers of {} bits are not supported. store them as int64, or as floating point",
                    is_signed ? "signed" : "unsigned", 8 * bytes);
  }
  return info;
}

TypeInfo describe_float(hid_t type) {
  TypeInfo info;
  FloatFields f{DType::f32, H5Tget_size(type), 0, 0, 0, 0, H5Tget_ebias(type)};
  std::size_t mantissa_at = 0;
  H5Tget_fields(type, &f.sign, &f.exponent_at, &f.exponent_bits, &mantissa_at, &f.mantissa_bits);
  for (const FloatFields& known : {half, brain, single, wide}) {
    f.dtype = known.dtype;
    if (f == known && mantissa_at == 0 && H5Tget_offset(type) == 0) {
      info.dtype = known.dtype;
      return info;
    }
  }
  info.unsupported_reason = fmt::format(
      "floating point numbers of {} bits ({} exponent, {} mantissa) are not supported. store them as float32",
      8 * f.bytes, f.exponent_bits, f.mantissa_bits);
  return info;
}

const char* class_name(H5T_class_t type_class) {
  constexpr TableRow<H5T_class_t, const char*> names[] = {
      {H5T_TIME, "time"},        {H5T_STRING, "string"},        {H5T_BITFIELD, "bit field"},
      {H5T_OPAQUE, "opaque"},    {H5T_COMPOUND, "compound"},    {H5T_REFERENCE, "reference"},
      {H5T_ENUM, "enumeration"}, {H5T_VLEN, "variable-length"}, {H5T_ARRAY, "array"}};
  return find_value(names, type_class, "unknown");
}

}  // namespace

hid_t native_type(DType dtype) {
  static const TableRow<DType, hid_t> types[] = {{DType::u8, H5T_NATIVE_UINT8},    {DType::i8, H5T_NATIVE_INT8},
                                                 {DType::u16, H5T_NATIVE_UINT16},  {DType::i16, H5T_NATIVE_INT16},
                                                 {DType::i32, H5T_NATIVE_INT32},   {DType::i64, H5T_NATIVE_INT64},
                                                 {DType::f32, H5T_NATIVE_FLOAT},   {DType::f64, H5T_NATIVE_DOUBLE},
                                                 {DType::f16, make_float16(half)}, {DType::bf16, make_float16(brain)}};
  if (const hid_t* type = find_value(types, dtype)) return *type;
  fail(Exit::internal, "internal error: no HDF5 type for {}", name_of(dtype));
}

TypeInfo describe_type(hid_t type, bool converting) {
  const H5T_class_t type_class = H5Tget_class(type);
  TypeInfo info;
  if (type_class == H5T_ENUM) {  // h5py stores booleans as enumerations
    const Handle integers(MR_H5("an enumeration", H5Tget_super(type)), H5Tclose);
    return describe_type(integers, converting);
  }
  if (type_class == H5T_INTEGER) {
    info = describe_integer(type);
  } else if (type_class == H5T_FLOAT) {
    info = describe_float(type);
  } else {
    info.unsupported_reason =
        fmt::format("elements are of a {} type, not plain numbers{}", class_name(type_class),
                    type_class == H5T_STRING ? ". store numbers; of words, their class numbers" : "");
  }
  if (converting && !info.unsupported_reason.empty() && (type_class == H5T_INTEGER || type_class == H5T_FLOAT)) {
    info = {};
    info.dtype = type_class == H5T_INTEGER ? DType::i64 : DType::f64;
    return info;
  }
  if (info.unsupported_reason.empty() || info.uint32_as_int32) {
    const H5T_order_t order = H5Tget_order(type);
    info.big_endian = size_of(info.dtype) > 1 && order == H5T_ORDER_BE;
    if (!converting && (order == H5T_ORDER_VAX || order == H5T_ORDER_MIXED))
      info.unsupported_reason = "elements are in VAX or mixed byte order";
  }
  return info;
}

}  // namespace millrace::io
