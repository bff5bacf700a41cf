#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/model/pt2/import.hpp"
#include "model/pt2/context.hpp"

namespace millrace::pt2 {
namespace {

// The part of a tensor that a parameter has: all of it, or its first rows.
std::vector<float> read_part(TensorReader& reader, const StoredTensor& tensor, std::int64_t count) {
  StoredTensor part = tensor;
  const std::int64_t all = tensor.count();
  if (!part.sizes.empty() && all > 0) part.sizes[0] = part.sizes[0] * count / all;
  if (part.count() != count)
    fail(Exit::data, "the tensor '{}' has {} elements, but the network needs {}", tensor.name, all, count);
  std::vector<float> out(static_cast<std::size_t>(count));
  reader.read(part, out);
  return out;
}

}  // namespace

std::vector<std::string> unused_parameters(const ExportedProgram& program) {
  std::set<std::string> read;
  for (const ExportedNode& node : simplified_nodes(program))
    for (const auto& [name, value] : node.arguments) {
      if (const auto* tensor = std::get_if<TensorName>(&value)) read.insert(tensor->name);
      if (const auto* list = std::get_if<std::vector<TensorName>>(&value))
        for (const TensorName& one : *list) read.insert(one.name);
    }
  std::vector<const StoredTensor*> used;
  for (const GraphInput& input : program.inputs)
    if (input.tensor >= 0 && read.contains(input.name)) used.push_back(&program.tensors[std::size_t(input.tensor)]);
  std::vector<std::string> out;
  for (const GraphInput& input : program.inputs) {
    if (input.kind != GraphInput::Kind::parameter || read.contains(input.name)) continue;
    const StoredTensor& tensor = program.tensors[std::size_t(input.tensor)];
    if (std::ranges::none_of(used, [&](const StoredTensor* other) { return other->same_storage(tensor); }))
      out.push_back(tensor.name);
  }
  return out;
}

ArchiveValues::ArchiveValues(const ExportedProgram& program, const Graph& graph)
    : program_(program), graph_(graph), reader_(program) {}
ArchiveValues::~ArchiveValues() = default;

void ArchiveValues::read_parameter(int number, std::span<float> out) {
  const ArchivePlace& place = graph_.parameters[std::size_t(number)].archive;
  MR_CHECK(place.tensor >= 0 && std::int64_t(out.size()) == place.extents.count());
  const StoredTensor& tensor = program_.tensors[std::size_t(place.tensor)];
  const std::vector<float> values = read_part(reader_, tensor, place.extents.count());
  std::array<std::int64_t, Shape::max_rank> at{};
  std::int64_t to = 0;
  for (const float value : values) {
    out[std::size_t(to)] = value;
    for (int axis = place.extents.rank - 1; axis >= 0; --axis) {
      const auto a = std::size_t(axis);
      to += place.strides[a];
      if (++at[a] < place.extents.dims[a]) break;
      to -= place.extents.dims[a] * place.strides[a];
      at[a] = 0;
    }
  }
}

void ArchiveValues::read_statistics(int number, std::span<float> out) {
  const RunningStats& stats = graph_.stats[std::size_t(number)];
  MR_CHECK(std::int64_t(out.size()) == 2 * stats.channels && stats.archive_mean >= 0 && stats.archive_variance >= 0);
  int half = 0;
  for (const int tensor : {stats.archive_mean, stats.archive_variance}) {
    const auto values = read_part(reader_, program_.tensors[std::size_t(tensor)], stats.channels);
    std::ranges::copy(values, out.begin() + stats.channels * half++);
  }
}

}  // namespace millrace::pt2
