// A reader of TensorBoard's event files for tests. It follows the descriptions of the formats, TFRecord and the wire
// format of Protocol Buffers, and computes checksums bit by bit. It shares no code with the writer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::test {

struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  std::string version;
  bool start = false;                    // a session starts with this event
  std::map<std::string, float> scalars;  // by tag
};

inline std::uint32_t crc32c_by_bits(const std::string& bytes) {
  std::uint32_t r = 0xffffffffu;
  for (const char c : bytes)
    for (int bit = 0; bit < 8; ++bit) {
      const bool one = ((r ^ (static_cast<unsigned char>(c) >> bit)) & 1u) != 0;
      r >>= 1;
      if (one) r ^= 0x82f63b78u;
    }
  return r ^ 0xffffffffu;
}

class Bytes {  // bytes that are read from front to back
 public:
  explicit Bytes(std::string bytes) : bytes_(std::move(bytes)) {}
  bool empty() const { return at_ == bytes_.size(); }
  std::string take(std::size_t n) {
    if (n > bytes_.size() - at_) throw std::runtime_error("truncated");
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = fixed<unsigned char>();
      value |= std::uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
  }

 private:
  std::string bytes_;
  std::size_t at_ = 0;
};

// Calls f(field number, number, text) for each field: wire type 2 gives a text, types 0, 1 and 5 give a number.
template <class F>
void for_each_field(const std::string& message, F f) {
  for (Bytes in(message); !in.empty();) {
    const auto key = in.varint();
    std::uint64_t number = 0;
    std::string text;
    switch (key & 7) {
      case 0:
        number = in.varint();
        break;
      case 1:
        number = in.fixed<std::uint64_t>();
        break;
      case 2:
        text = in.take(in.varint());
        break;
      case 5:
        number = in.fixed<std::uint32_t>();
        break;
      default:
        throw std::runtime_error("unknown wire type");
    }
    f(key >> 3, number, text);
  }
}

inline Event decode_event(const std::string& message) {
  Event out;
  for_each_field(message, [&](std::uint64_t field, std::uint64_t number, const std::string& text) {
    if (field == 1) std::memcpy(&out.wall_time, &number, 8);
    if (field == 2) out.step = std::int64_t(number);
    if (field == 3) out.version = text;
    if (field == 7) out.start = text == "\x08\x01";
    if (field != 5) return;
    for_each_field(text, [&](std::uint64_t, std::uint64_t, const std::string& value) {
      std::string tag;
      float simple = 0;
      for_each_field(value, [&](std::uint64_t of_value, std::uint64_t bits, const std::string& name) {
        if (of_value == 1) tag = name;
        if (of_value == 2) std::memcpy(&simple, &bits, 4);
      });
      if (!out.scalars.emplace(tag, simple).second) throw std::runtime_error("an event has the same tag twice: " + tag);
    });
  });
  return out;
}

// Throws if a checksum is wrong or a record is truncated.
inline std::vector<Event> read_events(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<Event> out;
  const auto checked = [](Bytes& in, const std::string& what) {
    const std::uint32_t crc = crc32c_by_bits(what), masked = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    if (in.fixed<std::uint32_t>() != masked) throw std::runtime_error("wrong checksum");
  };
  for (Bytes in(std::string(std::istreambuf_iterator<char>(file), {})); !in.empty();) {
    const std::string length = in.take(8);
    checked(in, length);
    const std::string message = in.take(Bytes(length).fixed<std::uint64_t>());
    checked(in, message);
    out.push_back(decode_event(message));
  }
  return out;
}

struct Point {
  std::int64_t step;
  double wall_time;
  float value;
};
// Returns the points that TensorBoard shows for a folder. TensorBoard reads the files in the order of their names. At
// each session start except the first, it drops all points from that step on.
inline std::map<std::string, std::vector<Point>> shown_by_tensorboard(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::map<std::string, std::vector<Point>> out;
  bool started = false;
  for (const auto& file : files)
    for (const Event& e : read_events(file)) {
      if (e.start && started)
        for (auto& [tag, points] : out) std::erase_if(points, [&](const Point& p) { return p.step >= e.step; });
      started = started || e.start;
      for (const auto& [tag, value] : e.scalars) out[tag].push_back({e.step, e.wall_time, value});
    }
  return out;
}

}  // namespace millrace::test
