// Importer: reads rows from foreign formats. Every rank opens it and reads only the rows that it packs.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "millrace/data/index/sample_layout.hpp"
#include "millrace/device/tensor.hpp"

namespace millrace {

class Importer {
 public:
  virtual ~Importer() = default;
  virtual std::int64_t rows() const = 0;
  virtual Shape sample() const = 0;  // as stored: (28, 28, 1), (3, 32, 32), (64, 8), ...
  virtual bool channels_first() const = 0;
  virtual DType x_dtype() const = 0;                                    // of the values that read() gives
  virtual std::optional<double> scale() const { return std::nullopt; }  // if the input has its own
  virtual double offset() const { return 0; }                           // added to value * scale
  virtual DType y_dtype() const = 0;
  virtual Shape target() const = 0;  // of a row of y; (): one label; labels: of their map
  virtual std::vector<std::string> class_names() const { return {}; }  // by label; empty: the input has none
  virtual std::int64_t vocabulary() const { return 0; }                // of a tokenizer: the classes; 0: unknown
  virtual std::string tokenizer() const { return ""; }                 // Tokenizer::to_json(); "": none
  virtual void read(std::int64_t begin, std::int64_t count, void* x, void* y) const = 0;  // consecutive rows
  virtual bool random_access() const { return false; }  // reading a row takes the same time in any order
  virtual std::string describe() const = 0;
  // "row 3 of a.npy", for messages; target: of the file of y.
  virtual std::string place_of(std::int64_t row, [[maybe_unused]] bool target) const {
    return "row " + std::to_string(row);
  }
};

// x and y name files of one format, which is recognised by contents and names:
// - MNIST idx (also .gz) and NumPy .npy;
// - NumPy .npz and HDF5: x and y may be the same file; x_name and y_name are arrays in it;
// - .csv: if y is empty, y_name is the label column, by name or by number from 1;
// - with y empty: CIFAR-10 binary, a folder of images by class, or tokens (token_bytes > 0).
// Several files are read one after the other. Samples of int64 are converted to int32. Error(data) with file and
// reason.
struct ImportOptions {
  std::vector<std::string> x, y;
  std::string x_name = "x", y_name = "y";
  Layout layout = Layout::automatic;  // ignored for CIFAR-10 and images, whose layout is known
  bool targets = false;               // CSV: whole numbers in y are targets, not labels
  // Images: length of the shorter side after resizing (0: no resizing), then side of the square that is cut from the
  // centre (0: `resize`).
  std::int64_t resize = 0, crop = 0;
  bool grey = false;                    // images: one channel instead of three
  bool apply_exif_orientation = false;  // images: turn a JPEG upright first
  std::int64_t token_bytes = 0;         // 1 (text), 2 or 4, little-endian: x are tokens
  std::int64_t context = 0;             // tokens: a sample is a window of context + 1 tokens
  std::int64_t vocabulary = 0;          // tokens: see Importer
  std::string tokenizer = {};
};
std::unique_ptr<Importer> make_importer(const ImportOptions&);

}  // namespace millrace
