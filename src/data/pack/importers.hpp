// The importers' makers, one a format, and what they share. Private to the data room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/pack/importer.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// A whole array in memory, or one that is read on demand: rows of x or of y.
class RowFile {
 public:
  virtual ~RowFile() = default;
  virtual std::int64_t rows() const = 0;
  virtual Shape row() const = 0;
  virtual DType dtype() const = 0;
  virtual void read(std::int64_t begin, std::int64_t count, void* out) const = 0;
  virtual const std::string& path() const = 0;
  virtual bool random_access() const { return false; }  // as Importer's
  // What the file says of its samples, where its format can.
  virtual std::optional<std::string> layout() const { return std::nullopt; }
  virtual std::optional<double> scale() const { return std::nullopt; }
  virtual double offset() const { return 0; }
  virtual std::vector<std::string> class_names() const { return {}; }  // of labels, by number
  virtual std::string header() const { return ""; }     // of a table: what its first line says of the columns
  virtual std::string rows_hint() const { return ""; }  // where the number of rows may surprise
};

// A folder of images by class: every file with the number of its class, in the order of names. Error(data).
struct ImageFolder {
  struct File {
    std::string path;
    std::int32_t label;
  };
  std::vector<File> files;
  std::vector<std::string> classes;
  std::int64_t ignored_files = 0;  // other files
};
ImageFolder list_images(const std::string& root);

struct RowPair {
  std::unique_ptr<RowFile> x, y;
};

std::string read_maybe_gzip(const std::string& path);        // Error(data)
std::unique_ptr<RowFile> open_idx(const std::string& path);  // plain or .gz
std::unique_ptr<RowFile> open_npy(const std::string& path);
std::unique_ptr<RowFile> open_npy(const std::string& place, std::string content);
std::unique_ptr<RowFile> open_npz(const std::string& path, const std::string& array);
RowPair open_csv(const std::string& path, const std::string& label, bool targets);  // targets: even whole numbers
std::unique_ptr<RowFile> open_csv_samples(const std::string& path);                 // of tables with y in their own
std::unique_ptr<RowFile> open_csv_targets(const std::string& path, bool targets);
std::unique_ptr<RowFile> open_hdf5_rows(const std::string& path, const std::string& dataset);
// JPEG or PNG in it, decoded; null: the data set holds values.
std::unique_ptr<RowFile> open_encoded_rows(const std::string& path, const std::string& dataset, const ImportOptions&);
std::unique_ptr<Importer> import_cifar10(const std::vector<std::string>& paths);
std::unique_ptr<Importer> import_images(const ImportOptions&);
std::unique_ptr<Importer> import_tokens(const ImportOptions&);

}  // namespace millrace
