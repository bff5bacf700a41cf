// Importer: other people's formats -> rows. Opened by every rank; each rank reads only the rows that it packs.
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
  virtual DType x_dtype() const = 0;                                    // of what read() gives
  virtual std::optional<double> scale() const { return std::nullopt; }  // on values, where the input has its own
  virtual double offset() const { return 0; }                           // added to value * scale
  virtual DType y_dtype() const = 0;
  virtual Shape target() const = 0;                                    // of one row of y; () for labels
  virtual std::vector<std::string> class_names() const { return {}; }  // by label, where the input has them
  virtual void read(std::int64_t begin, std::int64_t count, void* x, void* y) const = 0;  // consecutive rows
  virtual bool random_access() const { return false; }  // a row costs the same wherever it is
  virtual std::string describe() const = 0;
};

// x and y: files of one kind, told by their names and contents: MNIST idx(.gz), CIFAR-10 binary (y empty), NumPy .npy;
// NumPy .npz and HDF5 (x and y may be one file; x_name, y_name are arrays in it); .csv (y empty: y_name is the column
// of the labels, by name or number from 1); a folder of images by class (y empty); tokens where token_bytes says so (y
// empty). Several files are taken one after the other. Samples of int64 come as int32. Error(data) with file and
// reason.
struct ImportOptions {
  std::vector<std::string> x, y;
  std::string x_name = "x", y_name = "y";
  Layout layout = Layout::automatic;  // of all but CIFAR-10 and images, whose layout is known
  bool targets = false;               // CSV: whole numbers in y are targets too, not labels
  // Images: short side, then a square from the centre; 0: as they are (crop: resize). One channel instead of three.
  std::int64_t resize = 0, crop = 0;
  bool grey = false;
  bool apply_exif_orientation = false;  // images: JPEG is turned as its EXIF says, before all else
  std::int64_t token_bytes = 0;         // 1 (text), 2 or 4, little-endian: x are tokens
  std::int64_t context = 0;             // tokens: a sample is a window of context + 1
};
std::unique_ptr<Importer> make_importer(const ImportOptions&);

}  // namespace millrace
