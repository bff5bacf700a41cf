// Imports NumPy's .npz: a zip archive of .npy files, stored (savez) or deflated (savez_compressed). Supports the zip
// features that these two write: a central directory with or without 64-bit fields, one disk, no encryption.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "data/pack/importers.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"

namespace millrace {
namespace {

struct Member {
  std::string name;
  unsigned method = 0, flags = 0;
  std::uint32_t crc = 0;
  std::uint64_t stored = 0, bytes = 0, header_at = 0;
};

class Zip {
 public:
  explicit Zip(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    file_.seekg(0, std::ios::end);
    if (!file_) fail(Exit::data, "cannot open {} (no such file, or not readable)", path);
    bytes_ = std::uint64_t(file_.tellg());
    read_directory();
  }
  const std::vector<Member>& members() const { return members_; }

  std::string content(const Member& m) {
    if (m.flags & 1) fail(Exit::data, "{} is encrypted. save it without a password", path_);
    if (m.method != 0 && m.method != 8)
      fail(Exit::data, "{} compresses {} by zip's method {}. save it with numpy.savez or savez_compressed", path_,
           m.name, m.method);
    const std::string header = at(m.header_at, 30);
    if (number(header, 0, 4) != 0x04034b50) damaged("the header of " + m.name);
    const std::uint64_t begin = m.header_at + 30 + number(header, 26, 2) + number(header, 28, 2);
    std::string out = at(begin, m.stored);
    if (m.method == 8) out = inflated(out, m);
    if (out.size() != m.bytes || crc32(out.data(), out.size()) != m.crc) damaged("the checksum of " + m.name);
    return out;
  }

 private:
  static std::uint64_t number(const std::string& text, std::size_t at, std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | std::uint8_t(text[at + i]);
    return value;
  }
  [[noreturn]] void damaged(const std::string& what) const {
    fail(Exit::data, "{} is damaged or cut off ({}). fetch or save it again", path_, what);
  }

  std::string at(std::uint64_t offset, std::uint64_t bytes) {
    if (offset > bytes_ || bytes > bytes_ - offset) damaged("it ends before byte " + std::to_string(offset + bytes));
    std::string out(bytes, '\0');
    file_.clear();
    file_.seekg(std::streamoff(offset));
    file_.read(out.data(), std::streamsize(bytes));
    if (std::uint64_t(file_.gcount()) != bytes) damaged("a read at byte " + std::to_string(offset));
    return out;
  }

  void read_directory() {
    constexpr std::uint64_t end_bytes = 22, longest_comment = 65535;
    const std::uint64_t tail = std::min(bytes_, end_bytes + longest_comment);
    const std::string text = at(bytes_ - tail, tail);
    const auto end = text.rfind("PK\5\6");
    if (end == text.npos || text.size() - end < end_bytes) damaged("no directory at its end");
    std::uint64_t count = number(text, end + 10, 2), size = number(text, end + 12, 4),
                  begin = number(text, end + 16, 4);
    if (end >= 20 && text.compare(end - 20, 4, "PK\6\7") == 0) {  // the 64-bit end of the directory
      const std::string wide = at(number(text, end - 12, 8), 56);
      if (number(wide, 0, 4) != 0x06064b50) damaged("the 64-bit directory");
      count = number(wide, 32, 8);
      size = number(wide, 40, 8);
      begin = number(wide, 48, 8);
    }
    const std::string all = at(begin, size);
    std::size_t place = 0;
    for (std::uint64_t i = 0; i < count; ++i) place = read_member(all, place);
  }

  std::size_t read_member(const std::string& all, std::size_t p) {
    constexpr std::size_t fixed = 46;
    if (all.size() < p + fixed || number(all, p, 4) != 0x02014b50) damaged("its directory");
    Member m;
    m.flags = unsigned(number(all, p + 8, 2));
    m.method = unsigned(number(all, p + 10, 2));
    m.crc = std::uint32_t(number(all, p + 16, 4));
    m.stored = number(all, p + 20, 4);
    m.bytes = number(all, p + 24, 4);
    m.header_at = number(all, p + 42, 4);
    const std::size_t name = number(all, p + 28, 2), extra = number(all, p + 30, 2), comment = number(all, p + 32, 2);
    const std::size_t next = p + fixed + name + extra + comment;
    if (all.size() < next) damaged("its directory");
    m.name = all.substr(p + fixed, name);
    // The extra field 1 holds those of the three numbers that do not fit into 32 bits.
    for (std::size_t e = p + fixed + name, end = e + extra; e + 4 <= end;) {
      const std::size_t id = number(all, e, 2), bytes = number(all, e + 2, 2);
      std::size_t at = e + 4;
      e += 4 + bytes;
      if (e > end) damaged("its directory");
      for (std::uint64_t* field : {&m.bytes, &m.stored, &m.header_at})
        if (id == 1 && *field == 0xffffffff && at + 8 <= e) {
          *field = number(all, at, 8);
          at += 8;
        }
    }
    members_.push_back(std::move(m));
    return next;
  }

  std::string inflated(const std::string& in, const Member& m) const {
    if (m.bytes / 1100 > in.size()) damaged("the size of " + m.name);  // deflate produces at most 1032 bytes per byte
    std::string out(m.bytes, '\0');
    z_stream z{};
    if (::inflateInit2(&z, -MAX_WBITS) != Z_OK) fail(Exit::internal, "zlib does not start");
    std::size_t taken = 0, made = 0;
    int code = Z_OK;
    while (code == Z_OK || (code == Z_BUF_ERROR && taken < in.size() && made < out.size())) {
      constexpr std::size_t most = 1u << 30;
      const std::size_t give = std::min(most, in.size() - taken), room = std::min(most, out.size() - made);
      z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data())) + taken;
      z.avail_in = uInt(give);
      z.next_out = reinterpret_cast<Bytef*>(out.data()) + made;
      z.avail_out = uInt(room);
      code = ::inflate(&z, Z_NO_FLUSH);
      taken += give - z.avail_in;
      made += room - z.avail_out;
    }
    ::inflateEnd(&z);
    if (code != Z_STREAM_END || made != out.size()) damaged(m.name + " does not inflate");
    return out;
  }

  std::string path_;
  std::ifstream file_;
  std::uint64_t bytes_ = 0;
  std::vector<Member> members_;
};

}  // namespace

std::unique_ptr<RowFile> open_npz(const std::string& path, const std::string& array) {
  Zip zip(path);
  std::string names;
  for (const Member& m : zip.members()) {
    if (m.name == array + ".npy") return open_npy(path + ":" + array, zip.content(m));
    const auto dot = m.name.rfind(".npy");
    names += (names.empty() ? "" : ", ") + m.name.substr(0, dot);
  }
  fail(Exit::data, "{} has no array '{}' (it has: {}). name it with --x-name or --y-name", path, array,
       names.empty() ? "none" : names);
}

}  // namespace millrace
