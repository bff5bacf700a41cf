// Bytes of .npy and .npz files as NumPy writes them.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/zip_bytes.hpp"

namespace millrace::test {

// A file of version 1.0 with this header.
inline std::string npy_with(std::string header, const std::string& data) {
  header += '\n';
  return std::string("\x93NUMPY\1\0", 8) + little(header.size(), 2) + header + data;
}

inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data) {
  return npy_with("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

// Like NumPy, writes 64-bit sizes in the header of each member and, if wide, in the directory too.
inline std::string npz(const std::vector<std::pair<std::string, std::string>>& members, bool deflate, bool wide = false,
                       unsigned method = 99, unsigned flags = 0) {
  std::string out, directory;
  for (const auto& [name, content] : members) {
    const std::string stored = deflate ? deflated(content) : content;
    const std::string common =
        little(flags, 2) + little(method == 99 ? (deflate ? 8 : 0) : method, 2) + little(0, 4) +
        little(::crc32(0, reinterpret_cast<const Bytef*>(content.data()), uInt(content.size())), 4);
    const std::string none = "\xff\xff\xff\xff", sizes = little(content.size(), 8) + little(stored.size(), 8);
    const std::string at = little(out.size(), 8);
    directory += "PK\1\2" + little(45, 2) + little(45, 2) + common +
                 (wide ? none + none : little(stored.size(), 4) + little(content.size(), 4)) + little(name.size(), 2) +
                 little(wide ? 28 + 6 : 0, 2) + little(3, 2) + little(0, 8) + (wide ? none : at.substr(0, 4)) + name +
                 (wide ? little(0x7777, 2) + little(2, 2) + "??" + little(1, 2) + little(24, 2) + sizes + at : "") +
                 "abc";
    out += "PK\3\4" + little(45, 2) + common + none + none + little(name.size(), 2) + little(20, 2) + name +
           little(1, 2) + little(16, 2) + sizes + stored;
  }
  const std::uint64_t begin = out.size(), end = begin + directory.size();
  out += directory;
  if (wide)
    out += "PK\6\6" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) + little(members.size(), 8) +
           little(members.size(), 8) + little(directory.size(), 8) + little(begin, 8) + "PK\6\7" + little(0, 4) +
           little(end, 8) + little(1, 4);
  return out + "PK\5\6" + little(0, 4) + little(wide ? 0xffff : members.size(), 2) +
         little(wide ? 0xffff : members.size(), 2) + little(wide ? 0xffffffff : directory.size(), 4) +
         little(wide ? 0xffffffff : begin, 4) + little(5, 2) + "hello";
}

}  // namespace millrace::test
