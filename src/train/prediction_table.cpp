#include "train/prediction_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <system_error>
#include <utility>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/message_of.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

using Content = PredictionArray::Content;

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\n\r") == field.npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + '"';
}

// Whether the names of the classes follow their numbers, in columns of their own.
bool has_names(const PredictionArray& array) {
  return !array.class_names.empty() && (array.content == Content::classes || array.content == Content::top_classes);
}

std::string name_of_class(const PredictionArray& array, std::size_t number) {
  return number < array.class_names.size() ? array.class_names[number] : "";
}

std::string header_of(const PredictionArray& array) {
  std::string out;
  std::string name = array.name;
  std::ranges::replace(name, '/', '.');
  for (std::int64_t i = 0; i < array.values(); ++i) {
    std::string which = array.values() > 1 ? fmt::format("_{}", i) : "";
    const std::string names = (array.content == Content::top_classes ? "top_names" : "name") + which;
    if (array.content == Content::probabilities && !name_of_class(array, std::size_t(i)).empty() && !which.empty())
      which = "_" + name_of_class(array, std::size_t(i));
    out += "," + quoted(name + which);
    if (has_names(array)) out += "," + names;
  }
  return out;
}

// The values of a row; all numbers of classes and of samples are below 2^53.
template <class T>
void copy_values(const char* from, std::int64_t count, double* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + std::size_t(i) * sizeof value, sizeof value);
    to[i] = double(value);
  }
}

}  // namespace

PredictionTable::PredictionTable(World& world, std::filesystem::path path, std::int64_t samples,
                                 std::vector<PredictionArray> arrays)
    : world_(world), path_(std::move(path)), samples_(samples), arrays_(std::move(arrays)) {
  for (const PredictionArray& array : arrays_) {
    if (!array.tabular)
      fail(Exit::config, "command line: --output: a table cannot hold '{}'. name a file that ends in .h5", array.name);
    begins_.push_back(columns_);
    columns_ += std::size_t(array.values());
  }
  const double values = double(samples) * double(columns_);
  if (values > double(max_values))
    fail(Exit::config,
         "command line: --output: {} would hold {:.0f} values (at most {} are written as CSV). name a file that ends "
         "in .h5",
         path_.string(), values, max_values);
  values_.resize(std::size_t(samples) * columns_);
}

void PredictionTable::write(std::size_t a, std::int64_t first, std::int64_t rows, const char* data) {
  const PredictionArray& array = arrays_[a];
  for (std::int64_t row = 0; row < rows; ++row) {
    double* const to = &values_[std::size_t(first + row) * columns_ + begins_[a]];
    const char* const from = data + std::size_t(row) * array.bytes();
    if (array.dtype == DType::f32)
      copy_values<float>(from, array.values(), to);
    else if (array.dtype == DType::i64)
      copy_values<std::int64_t>(from, array.values(), to);
    else
      copy_values<std::int32_t>(from, array.values(), to);
  }
}

std::string PredictionTable::text() const {
  std::string out = "row";
  for (const PredictionArray& array : arrays_) out += header_of(array);
  out += '\n';
  for (std::int64_t row = 0; row < samples_; ++row) {
    out += std::to_string(row);
    for (std::size_t a = 0; a < arrays_.size(); ++a)
      for (std::int64_t i = 0; i < arrays_[a].values(); ++i) {
        const double value = values_[std::size_t(row) * columns_ + begins_[a] + std::size_t(i)];
        if (arrays_[a].dtype == DType::f32)
          fmt::format_to(std::back_inserter(out), ",{}", float(value));
        else
          fmt::format_to(std::back_inserter(out), ",{:.0f}", value);
        if (has_names(arrays_[a])) out += "," + quoted(name_of_class(arrays_[a], std::size_t(value)));
      }
    out += '\n';
  }
  return out;
}

void PredictionTable::finish() {
  world_.all_reduce(values_, World::Reduce::sum);
  const watchdog::WaitScope waits(watchdog::Wait::file);
  std::string problem;
  if (world_.rank() == 0)
    problem = message_of([&] {
      check_prediction_path({path_, false});
      write_file_atomically(path_, text());
    });
  world_.agree(Exit::data, problem);
}

}  // namespace millrace
