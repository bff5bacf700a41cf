// DataOptions: which data set to read and how its samples become values. The configuration section "data" sets them.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "millrace/base/transform.hpp"
#include "millrace/data/index/faults.hpp"
#include "millrace/data/index/sample_layout.hpp"
#include "millrace/data/index/sample_view.hpp"

namespace millrace {

// How JPEG and PNG files become samples of one size.
struct DecodeOptions {
  std::int64_t resize = 0;  // length of the shorter side after resizing; 0: see ResizeCrop (decode/image_crops.hpp)
  std::int64_t crop = 0;    // side of the square that is then cut from the centre; 0: as above
  double min_area = 0;      // > 0: random resized crop of at least this fraction of the area, new in each epoch
  std::uint64_t seed = 0;   // of the random crop
};

constexpr std::int64_t ignore_label_from_files = -1;                            // use the files' ignore_label, or none
constexpr double offset_from_files = -std::numeric_limits<double>::infinity();  // use the files' offset, or 0

struct DataOptions {
  std::vector<std::string> paths;  // files or globs; "synthetic:images:rows=50000,shape=32x32x3,classes=10,seed=1"
  // Names of the HDF5 data sets; several, separated by commas, are concatenated. y empty: only x is wanted.
  std::string x = "x", y = "y";
  using Layout = millrace::Layout;
  Layout layout = Layout::automatic;  // automatic: the file's "layout" attribute, else the shape (sample_layout.hpp)
  double scale = 0;                   // 0: the files' scale, else 1/255 for uint8 images, else 1
  double offset = offset_from_files;
  Transform transform = Transform::none;
  DecodeOptions decode = {};
  bool manifest_cache = true;  // cache what the headers of many files say, for the next start
  SampleView view = {};
  bool validation_part = false;  // view.holdout > 0: use the pixels that are held out for validation, not the others
  FaultOptions faults = {};
  std::int64_t ignore_label = ignore_label_from_files;  // labels of this value do not count
};

}  // namespace millrace
