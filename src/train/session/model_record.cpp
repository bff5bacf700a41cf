#include "millrace/train/session/model_record.hpp"

#include <fmt/core.h>

#include "millrace/model/graph.hpp"

namespace millrace {

ShardIndex training_index(const ModelRecord& r) {
  ShardIndex out;
  out.sample = r.sample;
  out.x.dtype = r.sample_type;
  out.x.channels_first = r.channels_first;
  out.x.parts = r.parts;
  out.y.name = r.target_name;
  out.y.labels = r.labels;
  out.y.parts = r.target_parts;
  out.y.target = r.target;
  out.classes = r.classes;
  out.values = r.values;
  for (const InputRecord& i : r.inputs) {
    ShardIndex one;
    if (out.inputs.empty()) {
      one.y = out.y;
      one.classes = out.classes;
    } else {
      one.y.labels = false;
      one.y.target = Shape{0};
    }
    one.sample = i.sample;
    one.x.name = i.name;
    one.x.dtype = i.type;
    one.x.channels_first = i.channels_first;
    one.values = i.values;
    out.inputs.push_back(std::move(one));
  }
  return out;
}

bool has_comparable_function(const ModelRecord& r) { return r.function_version == function_text_version; }

std::string function_difference(const std::vector<std::string>& then, const std::vector<std::string>& now) {
  if (then == now) return "";
  std::size_t line = 0;
  while (line < then.size() && line < now.size() && then[line] == now[line]) ++line;
  const auto text = [line](const std::vector<std::string>& lines) {
    return line < lines.size() ? "'" + lines[line] + "'" : std::string("nothing");
  };
  return fmt::format("{} then, {} now", text(then), text(now));
}

}  // namespace millrace
