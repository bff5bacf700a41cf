#include "millrace/data/pack/importer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "data/pack/importers.hpp"
#include "data/scan/scan_file.hpp"
#include "data/scan/shard_values.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/data/index/class_names.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {
namespace {

class Hdf5Rows : public RowFile {
 public:
  Hdf5Rows(const std::string& path, const std::string& dataset)
      : place_(path + ":" + dataset), dataset_(dataset), file_(io::File::open_converting(path)) {
    if (!file_.has(dataset)) {
      std::string names;
      for (const auto& name : file_.datasets()) names += (names.empty() ? "" : ", ") + name;
      fail(Exit::data, "{} has no data set '{}' (it has: {}). name it with --x-name or --y-name", path, dataset,
           names.empty() ? "none" : names);
    }
    const io::DatasetInfo info = file_.info(dataset);
    if (!info.unsupported_reason.empty()) fail(Exit::data, "{} cannot be read ({})", place_, info.unsupported_reason);
    if (info.shape.empty() || info.shape.size() > Shape::max_rank - 1)
      fail(Exit::data, "{} has {} dimensions", place_, info.shape.size());
    rows_ = info.shape[0];
    dtype_ = info.dtype;
    for (std::size_t a = 1; a < info.shape.size(); ++a) row_.dims[std::size_t(row_.rank++)] = info.shape[a];
  }
  std::int64_t rows() const override { return rows_; }
  Shape row() const override { return row_; }
  DType dtype() const override { return dtype_; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override {
    file_.read_rows(dataset_, begin, count, dtype_, out);
  }
  const std::string& path() const override { return place_; }
  std::optional<std::string> layout() const override { return file_.get_string("/", "layout"); }
  std::optional<double> scale() const override {
    const double scale = scaling_of(file_, dataset_, 0).scale;
    return scale != 0 ? std::optional(scale) : std::nullopt;
  }
  double offset() const override { return scaling_of(file_, dataset_, 0).offset; }
  std::vector<std::string> class_names() const override {
    return parse_class_names(file_.get_string("/", "class_names").value_or(""));
  }
  std::string rows_hint() const override { return matlab_hint(file_, dataset_); }

 private:
  std::string place_, dataset_;
  io::File file_;
  std::int64_t rows_ = 0;
  DType dtype_ = DType::u8;
  Shape row_;
};

enum class Kind { idx, npy, npz, hdf5, csv, folder, unknown };

// Determined from the contents, else from the name (an HDF5 file may begin with a user block).
Kind kind_of(const std::string& path) {
  std::error_code none;
  if (std::filesystem::is_directory(path, none)) return Kind::folder;
  require_regular_file(path);
  std::string magic(8, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(magic.data(), std::streamsize(magic.size()));
  magic.resize(std::size_t(in.gcount()));
  if (magic.starts_with("\x93NUMPY")) return Kind::npy;
  if (magic == "\x89HDF\r\n\x1a\n") return Kind::hdf5;
  if (magic.starts_with("PK\3\4") || path.ends_with(".npz")) return Kind::npz;
  if (path.ends_with(".npy")) return Kind::npy;
  for (const char* end : {".csv", ".tsv", ".csv.gz", ".tsv.gz"})
    if (path.ends_with(end)) return Kind::csv;
  if (path.ends_with(".h5") || path.ends_with(".hdf5") || path.ends_with(".hdf") || path.ends_with(".mat"))
    return Kind::hdf5;
  if (magic.starts_with("\x1f\x8b") || path.find("idx") != std::string::npos) return Kind::idx;
  if (magic.size() >= 4 && magic[0] == 0 && magic[1] == 0 && magic[2] >= 0x08 && magic[2] <= 0x0E) return Kind::idx;
  return Kind::unknown;
}

std::unique_ptr<RowFile> open_rows(const std::string& path, const std::string& name) {
  switch (kind_of(path)) {
    case Kind::npy:
      return open_npy(path);
    case Kind::npz:
      return open_npz(path, name);
    case Kind::hdf5:
      return open_hdf5_rows(path, name);
    case Kind::idx:
      return open_idx(path);
    case Kind::csv:
      return open_csv_samples(path);
    case Kind::folder:
    case Kind::unknown:
      break;
  }
  fail(Exit::data,
       "'{}' has an unknown format. supported: idx or idx.gz (MNIST), .npy, .npz, .h5, .hdf5, .mat, .csv, CIFAR-10's "
       ".bin, a folder of images by class, or tokens with --tokens",
       path);
}

bool for_images(const ImportOptions& o) { return o.resize > 0 || o.crop > 0 || o.grey || o.apply_exif_orientation; }

// If o.y is empty, the file of x also holds y.
RowPair open_pair(const std::string& x, const std::string& y, const ImportOptions& o) {
  const bool csv_y = kind_of(y) == Kind::csv;
  if (o.targets && !csv_y)
    fail(Exit::config, "--targets is for CSV, whose numbers have no type. labels in {} are recognised by their type",
         y);
  if (csv_y && o.y.empty()) return open_csv(x, o.y_name, o.targets);
  std::unique_ptr<RowFile> images = kind_of(x) == Kind::hdf5 ? open_encoded_rows(x, o.x_name, o) : nullptr;
  if (!images && for_images(o))
    fail(Exit::config,
         "--resize, --crop, --grey and --upright are for folders of images by class, and for JPEG and PNG in HDF5. {} "
         "is neither",
         x);
  return {images ? std::move(images) : open_rows(x, o.x_name),
          csv_y ? open_csv_targets(y, o.targets) : open_rows(y, o.y_name)};
}

bool may_hold_both(Kind kind) {
  return kind == Kind::hdf5 || kind == Kind::npz || kind == Kind::csv || kind == Kind::unknown;
}

void require_same_rows(const RowFile& a, const RowFile& first) {
  if (a.row() != first.row() || a.dtype() != first.dtype())
    fail(Exit::data, "{} holds rows of {} {}, {} of {} {}. they must be equal", a.path(), a.row().str(),
         name_of(a.dtype()), first.path(), first.row().str(), name_of(first.dtype()));
  if (a.header() != first.header())
    fail(Exit::data, "{} has {}; {} has {}. give all tables the same columns", a.path(), a.header(), first.path(),
         first.header());
  if (const std::string other = first_class_mismatch(a.class_names(), first.class_names()); !other.empty())
    fail(Exit::data, "in {} {} in {}. number the classes in the same way, or join the files", a.path(), other,
         first.path());
}

void require_values(const RowFile& file) {
  if (file.row().count() == 0)
    fail(Exit::data, "{} holds rows of shape {}, which have no values (an extent is 0). save the array with its values",
         file.path(), file.row().str());
}

// Imports pairs of files, one of x and one of y, one pair after the other.
class PairImporter : public Importer {
 public:
  explicit PairImporter(const ImportOptions& o) {
    if (o.y.empty() && !may_hold_both(kind_of(o.x[0])))
      fail(Exit::config, "no labels or targets for {}. give --y FILES", o.x[0]);
    const auto y_paths = o.y.empty() ? o.x : o.y;
    if (o.x.size() != y_paths.size())
      fail(Exit::config, "{} files of x, but {} of y. give one of y for each of x", o.x.size(), y_paths.size());
    for (std::size_t f = 0; f < o.x.size(); ++f) {
      RowPair pair = open_pair(o.x[f], y_paths[f], o);
      x_.push_back(std::move(pair.x));
      y_.push_back(std::move(pair.y));
      if (x_[f]->rows() != y_[f]->rows())
        fail(Exit::data, "{} has {} rows, {} has {}. they must be equal{}", x_[f]->path(), x_[f]->rows(), y_[f]->path(),
             y_[f]->rows(), y_[f]->rows_hint());
      for (const auto* file : {x_[f].get(), y_[f].get()}) require_values(*file);
      require_same_rows(*x_[f], *x_[0]);
      require_same_rows(*y_[f], *y_[0]);
      rows_ += x_[f]->rows();
      ends_.push_back(rows_);
    }
    if (rows_ == 0) fail(Exit::data, "{} holds no rows", o.x[0]);
    if (x_[0]->row().rank == 0)
      fail(Exit::data, "{} holds single values, a sample needs at least one dimension", o.x[0]);
    layout_ = layout_of(*x_[0], *y_[0], o.layout);
    for (const auto& x : x_) {
      const SampleLayout other = layout_of(*x, *y_[0], o.layout);
      if (other.channels_first != layout_.channels_first || other.stored != layout_.stored ||
          x->scale() != x_[0]->scale() || x->offset() != x_[0]->offset())
        fail(Exit::data,
             "{} and {} differ in their attributes layout or scale. make them equal, or pack the files separately",
             x->path(), x_[0]->path());
    }
    labels_ = holds_labels({y_[0]->dtype(), y_[0]->row()}, layout_.sample, y_[0]->path());
  }
  std::int64_t rows() const override { return rows_; }
  Shape sample() const override { return layout_.stored; }
  bool channels_first() const override { return layout_.channels_first; }
  DType x_dtype() const override { return narrowed() ? DType::i32 : x_[0]->dtype(); }
  std::optional<double> scale() const override { return x_[0]->scale(); }
  double offset() const override { return x_[0]->offset(); }
  std::vector<std::string> class_names() const override { return y_[0]->class_names(); }
  DType y_dtype() const override { return y_[0]->dtype(); }
  bool random_access() const override { return x_[0]->random_access(); }
  Shape target() const override {
    const Shape row = y_[0]->row();
    return labels_ ? label_positions(row, layout_.sample) : row.count() == 1 ? Shape{} : row;
  }
  void read(std::int64_t begin, std::int64_t count, void* x, void* y) const override {
    const std::size_t x_bytes = std::size_t(x_[0]->row().count()) * size_of(x_dtype()),
                      y_bytes = std::size_t(y_[0]->row().count()) * size_of(y_dtype());
    auto* to_x = static_cast<char*>(x);
    auto* to_y = static_cast<char*>(y);
    while (count > 0) {
      const std::size_t f = std::size_t(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
      const std::int64_t first = begin - (f ? ends_[f - 1] : 0), n = std::min(count, ends_[f] - begin);
      narrowed() ? read_narrowed(*x_[f], first, n, to_x) : x_[f]->read(first, n, to_x);
      y_[f]->read(first, n, to_y);
      to_x += std::size_t(n) * x_bytes;
      to_y += std::size_t(n) * y_bytes;
      begin += n;
      count -= n;
    }
  }
  std::string place_of(std::int64_t row, bool target) const override {
    const std::size_t f = std::size_t(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
    return fmt::format("row {} of {}", row - (f ? ends_[f - 1] : 0), (target ? y_ : x_)[f]->path());
  }
  std::string describe() const override {
    const std::string how =
        fmt::format("{}{}", layout_.channels_first ? ", channels first " : ", channels last ", layout_.decided_by);
    return fmt::format("{}{}: {} rows of {} {}{}{}{}", x_[0]->path(),
                       x_.size() > 1 ? fmt::format(" and {} more", x_.size() - 1) : std::string(), rows_,
                       layout_.sample.str(), name_of(x_[0]->dtype()), narrowed() ? " (packed as int32)" : "",
                       layout_.decided_by.empty() ? "" : how, describe_table());
  }

 private:
  static SampleLayout layout_of(const RowFile& x, const RowFile& y, Layout requested) {
    return sample_layout(x.row(), requested, x.layout(), x.path(), {y.dtype(), y.row()});
  }
  // For tables: whether the first line was a header, and what y is.
  std::string describe_table() const {
    const std::string header = x_[0]->header();
    if (header.empty()) return "";
    constexpr std::size_t max_length = 60;
    return fmt::format(", {}{}{}", header.substr(0, max_length), header.size() > max_length ? "..." : "",
                       labels_ ? ", y are labels" : ", y are targets");
  }
  bool narrowed() const { return x_[0]->dtype() == DType::i64; }

  static void read_narrowed(const RowFile& file, std::int64_t begin, std::int64_t count, void* out) {
    const auto one = file.row().count();
    std::vector<std::int64_t> wide(std::size_t(count * one));
    file.read(begin, count, wide.data());
    auto* to = static_cast<std::int32_t*>(out);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      to[i] = std::int32_t(wide[i]);
      if (to[i] != wide[i])
        fail(Exit::data, "{} holds {} in row {}: 64-bit samples are packed as int32. store them as floating point",
             file.path(), wide[i], begin + std::int64_t(i) / one);
    }
  }

  SampleLayout layout_;
  bool labels_ = false;
  std::vector<std::unique_ptr<RowFile>> x_, y_;
  std::vector<std::int64_t> ends_;
  std::int64_t rows_ = 0;
};

std::vector<std::string> expand(const std::vector<std::string>& patterns) {
  std::vector<std::string> out;
  for (const auto& pattern : patterns) {
    const auto found = expand_glob(pattern);
    if (found.empty()) fail(Exit::data, "'{}' matches no file", pattern);
    out.insert(out.end(), found.begin(), found.end());
  }
  return out;
}

}  // namespace

std::unique_ptr<RowFile> open_hdf5_rows(const std::string& path, const std::string& dataset) {
  return std::make_unique<Hdf5Rows>(path, dataset);
}

std::unique_ptr<Importer> make_importer(const ImportOptions& options) {
  ImportOptions o = options;
  if (o.tokenizer.empty()) o.x = expand(o.x);  // otherwise the paths of temporary files
  o.y = expand(o.y);
  if (o.x.empty()) fail(Exit::config, "nothing to pack. give --x FILES");
  const bool images = o.token_bytes == 0 && kind_of(o.x[0]) == Kind::folder;
  if (o.targets && (images || o.token_bytes > 0)) fail(Exit::config, "--targets is for CSV. remove it");
  const bool cifar = o.token_bytes == 0 && o.x[0].ends_with(".bin");
  if ((cifar || o.token_bytes > 0) && for_images(o))
    fail(Exit::config, "--resize, --crop, --grey and --upright are for images. remove them");
  if (o.token_bytes > 0) return import_tokens(o);
  if (o.context > 0) fail(Exit::config, "--context is for tokens. say which with --tokens");
  if (images) return import_images(o);
  if (cifar && !o.y.empty())
    fail(Exit::config, "{} holds its own labels (CIFAR-10's binary format). remove --y", o.x[0]);
  if (cifar) return import_cifar10(o.x);
  return std::make_unique<PairImporter>(o);
}

}  // namespace millrace
