// The importers, one per format, and what they share. Private to the data room.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "millrace/data/pack/importer.hpp"
#include "millrace/io/hdf5.hpp"

namespace millrace {

// The rows of x or of y: an array in memory, or one that is read on demand.
class RowFile {
 public:
  virtual ~RowFile() = default;
  virtual std::int64_t rows() const = 0;
  virtual Shape row() const = 0;
  virtual DType dtype() const = 0;
  virtual void read(std::int64_t begin, std::int64_t count, void* out) const = 0;
  virtual const std::string& path() const = 0;
  virtual bool random_access() const { return false; }  // see Importer::random_access
  // Metadata of the file, if its format has any.
  virtual std::optional<std::string> layout() const { return std::nullopt; }
  virtual std::optional<double> scale() const { return std::nullopt; }
  virtual double offset() const { return 0; }
  virtual std::vector<std::string> class_names() const { return {}; }  // by label
  virtual std::string header() const { return ""; }                    // of a table: its columns, in words
  virtual std::string rows_hint() const { return ""; }                 // a hint for messages about the number of rows
};

// Lists a folder that contains one folder of images per class, in the order of names. Error(data) if a folder is empty.
struct ImageFolder {
  struct File {
    std::string path;
    std::int32_t label;
  };
  std::vector<File> files;
  std::vector<std::string> classes;
  std::int64_t ignored_files = 0;  // files that are not images
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
RowPair open_csv(const std::string& path, const std::string& label,
                 bool targets);                                      // targets: whole numbers are targets too
std::unique_ptr<RowFile> open_csv_samples(const std::string& path);  // tables whose y is in another file
std::unique_ptr<RowFile> open_csv_targets(const std::string& path, bool targets);
std::unique_ptr<RowFile> open_hdf5_rows(const std::string& path, const std::string& dataset);
// Decodes the JPEG or PNG files in a data set. Null if the data set holds values.
std::unique_ptr<RowFile> open_encoded_rows(const std::string& path, const std::string& dataset, const ImportOptions&);
std::unique_ptr<Importer> import_cifar10(const std::vector<std::string>& paths);
std::unique_ptr<Importer> import_images(const ImportOptions&);
std::unique_ptr<Importer> import_tokens(const ImportOptions&);

}  // namespace millrace
