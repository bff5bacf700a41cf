// Imports CSV tables. Samples are float32. One column of whole numbers or of words is labels; any other y is targets.
#include <algorithm>
#include <cmath>
#include <memory>

#include "data/pack/csv.hpp"
#include "data/pack/importers.hpp"
#include "millrace/base/error.hpp"

namespace millrace {
namespace {

using Table = std::shared_ptr<const CsvTable>;

std::string header_of(const CsvTable& table) {
  std::string names;
  for (const auto& name : table.columns) names += (names.empty() ? "" : ", ") + name;
  return table.header ? "columns " + names : "no header";
}

class Values : public RowFile {
 public:
  explicit Values(Table table, bool samples)
      : table_(std::move(table)), width_(std::int64_t(table_->values.size()) / table_->rows), samples_(samples) {}
  std::int64_t rows() const override { return table_->rows; }
  Shape row() const override { return samples_ || width_ > 1 ? Shape{width_} : Shape{}; }
  DType dtype() const override { return DType::f32; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override {
    std::copy_n(table_->values.begin() + begin * width_, count * width_, static_cast<float*>(out));
  }
  const std::string& path() const override { return table_->path; }
  std::string header() const override { return header_of(*table_); }

 private:
  Table table_;
  std::int64_t width_;
  bool samples_;
};

class Labels : public RowFile {
 public:
  Labels(Table table, bool targets) : table_(std::move(table)) {
    const auto& y = table_->labels;
    whole_ = !targets && std::all_of(y.begin(), y.end(), [](double v) {
      return v == std::floor(v) && std::abs(v) < double(std::int64_t(1) << 53);
    });
  }
  std::int64_t rows() const override { return table_->rows; }
  Shape row() const override { return {}; }
  DType dtype() const override { return whole_ ? DType::i64 : DType::f32; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override {
    const auto from = table_->labels.begin() + begin;
    if (whole_)
      std::transform(from, from + count, static_cast<std::int64_t*>(out), [](double v) { return std::int64_t(v); });
    else
      std::transform(from, from + count, static_cast<float*>(out), [](double v) { return float(v); });
  }
  const std::string& path() const override { return table_->path; }
  std::vector<std::string> class_names() const override { return table_->classes; }

 private:
  Table table_;
  bool whole_ = false;
};

std::unique_ptr<RowFile> labels_of(const Table& table, bool targets) {
  if (targets && !table->classes.empty())
    fail(Exit::data, "{} has words in column {}, which cannot be targets. remove --targets", table->path,
         table->columns[*table->label_at]);
  return std::make_unique<Labels>(table, targets);
}

}  // namespace

RowPair open_csv(const std::string& path, const std::string& label, bool targets) {
  const auto table = std::make_shared<const CsvTable>(read_csv(path, label));
  if (table->values.empty()) fail(Exit::data, "{} has one column, which is the label", path);
  return {std::make_unique<Values>(table, true), labels_of(table, targets)};
}

std::unique_ptr<RowFile> open_csv_samples(const std::string& path) {
  return std::make_unique<Values>(std::make_shared<const CsvTable>(read_csv(path, std::nullopt)), true);
}

std::unique_ptr<RowFile> open_csv_targets(const std::string& path, bool targets) {
  const auto table = std::make_shared<const CsvTable>(read_csv(path, ""));
  if (table->label_at) return labels_of(table, targets);
  return std::make_unique<Values>(table, false);
}

}  // namespace millrace
