// An exported network in a checkpoint: {"RECORD": {"json": TEXT}, "RECORD": {"hex": DIGITS}, "RECORD": {"bytes": 400}}.
// The values of the last one were left out.
#include <nlohmann/json.hpp>
#include <set>

#include "millrace/base/error.hpp"
#include "pt2/archive.hpp"
#include "pt2/json.hpp"
#include "pt2/stored_tensor.hpp"

namespace millrace::pt2 {
namespace {

constexpr std::size_t max_text = std::size_t(64) << 20;
constexpr const char* digits = "0123456789abcdef";

std::string hex_of(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    out += digits[std::uint8_t(c) >> 4];
    out += digits[std::uint8_t(c) & 15];
  }
  return out;
}

std::string bytes_of_hex(const std::string& text) {
  const std::string all = digits;
  std::string out;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const auto high = all.find(text[i]), low = all.find(text[i + 1]);
    if (high == all.npos || low == all.npos) fail(Exit::data, "'{}' are no hexadecimal digits", text.substr(i, 2));
    out += char(high << 4 | low);
  }
  return out;
}

}  // namespace

std::string program_text(const ExportedProgram& program,
                         const std::function<bool(const StoredTensor&)>& in_checkpoint) {
  const Archive archive(program);
  json records;
  std::size_t bytes = 0;
  for (const std::string& name : {graph_record, weights_record, constants_record, std::string("byteorder")})
    if (archive.has(name)) {
      if (archive.size(name) > max_text) return "";
      records[name] = {{"json", archive.read(name, max_text)}};
      bytes += archive.size(name);
    }
  std::set<std::string> needed;
  for (const StoredTensor& t : program.tensors) {
    records[t.record] = {{"bytes", archive.size(t.record)}};
    if (!in_checkpoint(t)) needed.insert(t.record);
  }
  for (const std::string& name : needed) {
    bytes += 2 * archive.size(name);
    if (bytes > max_text) return "";
    records[name] = {{"hex", hex_of(archive.read(name))}};
  }
  return records.dump(-1, ' ', true, json::error_handler_t::replace);
}

Archive::Archive(const std::filesystem::path& path, const std::string& text) : path_(path.string()) {
  try {
    const json document = parse_json(text);
    for (const auto& [name, record] : document.items()) {
      const auto& [kind, content] = tagged(record);
      Record& r = records_[name];
      if (kind == "json") r.content = content.get<std::string>();
      if (kind == "hex") r.content = bytes_of_hex(content.get<std::string>());
      r.size = r.content ? r.content->size() : std::uint64_t(integer_of(content));
    }
  } catch (const json::exception& e) {
    fail(Exit::data, "the network of {} in the checkpoint cannot be read ({})", path_, e.what());
  }
}

}  // namespace millrace::pt2
