// make_fields T1.nii.gz AREAS.nii.gz FOLDER: makes a data set of fields from cubes of the T1 image of a brain.
//
// Inputs: t1, and edge (the magnitude of its gradient), as int16 with scale_factor and add_offset of the CF
// conventions. Targets, as float32: grey (the fraction of voxels in one of the areas) and spread (the standard
// deviation of t1 in the cube, divided by 50). Every fourth cube is written to valid.h5, the others to train.h5. Prints
// the mean squared error of predicting the targets of valid.h5 by their means.
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "millrace/base/error.hpp"
#include "millrace/io/hdf5.hpp"

namespace {

using namespace millrace;
constexpr std::int64_t side = 16;

struct Volume {
  std::int64_t extent[3];
  std::vector<std::uint8_t> voxels;  // the first axis varies fastest
  double at(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return voxels[std::size_t(i + extent[0] * (j + extent[1] * k))];
  }
};

// Byte offsets in NIfTI-1: extents at 42, the type at 70, the voxels from 352 on.
Volume read_volume(const char* path) {
  const gzFile file = gzopen(path, "rb");
  std::string all(64u << 20, '\0');
  const int bytes = file ? gzread(file, all.data(), unsigned(all.size())) : -1;
  if (file) gzclose(file);
  std::int16_t extents[3] = {0, 0, 0}, type = 0;
  if (bytes > 352) {
    std::memcpy(extents, all.data() + 42, 6);
    std::memcpy(&type, all.data() + 70, 2);
  }
  Volume out{{extents[0], extents[1], extents[2]}, {}};
  const std::int64_t count = out.extent[0] * out.extent[1] * out.extent[2];
  if (type != 2 || bytes < 352 + count) fail(Exit::data, "{} is not a NIfTI-1 volume of bytes", path);
  out.voxels.assign(all.begin() + 352, all.begin() + 352 + count);
  return out;
}

struct Cubes {
  std::vector<std::int16_t> t1, edge;
  std::vector<float> grey, spread;
  std::int64_t rows() const { return std::int64_t(grey.size()); }

  void add(const Volume& image, const Volume& areas, const std::int64_t (&first)[3]) {
    double sum = 0, squares = 0, inside = 0;
    for (std::int64_t v = 0; v < side * side * side; ++v) {
      const std::int64_t i = first[0] + v / (side * side), j = first[1] + v / side % side, k = first[2] + v % side;
      const double value = image.at(i, j, k), x = image.at(i + 1, j, k) - image.at(i - 1, j, k),
                   y = image.at(i, j + 1, k) - image.at(i, j - 1, k), z = image.at(i, j, k + 1) - image.at(i, j, k - 1);
      t1.push_back(std::int16_t(100 * value - 6000));
      edge.push_back(std::int16_t(std::lround(100 * std::sqrt(x * x + y * y + z * z) / 2)));
      sum += value;
      squares += value * value;
      inside += areas.at(i, j, k) > 0;
    }
    const double count = double(side * side * side), mean = sum / count;
    grey.push_back(float(inside / count));
    spread.push_back(float(std::sqrt(squares / count - mean * mean) / 50));
  }

  void write(const std::string& path) const {
    io::File file = io::File::create(path);
    for (const auto& [name, values] : {std::pair{"/t1", &t1}, {"/edge", &edge}}) {
      file.create_dataset(name, DType::i16, {rows(), side, side, side});
      file.write_rows(name, 0, rows(), DType::i16, values->data());
      file.set(name, "scale_factor", 0.01);
    }
    file.set("/t1", "add_offset", 60.0);
    for (const auto& [name, values] : {std::pair{"/grey", &grey}, {"/spread", &spread}}) {
      file.create_dataset(name, DType::f32, {rows()});
      file.write_rows(name, 0, rows(), DType::f32, values->data());
    }
    file.close();
  }
};

double variance(const std::vector<float>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
  }
  const double count = double(values.size());
  return squares / count - sum / count * (sum / count);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) fail(Exit::config, "make_fields T1.nii.gz AREAS.nii.gz FOLDER");
  const Volume image = read_volume(argv[1]), areas = read_volume(argv[2]);
  Cubes train, valid;
  std::int64_t number = 0, first[3];
  for (first[0] = 1; first[0] + side < image.extent[0]; first[0] += side)
    for (first[1] = 1; first[1] + side < image.extent[1]; first[1] += side)
      for (first[2] = 1; first[2] + side < image.extent[2]; first[2] += side)
        if (image.at(first[0] + side / 2, first[1] + side / 2, first[2] + side / 2) > 0)
          (number++ % 4 == 0 ? valid : train).add(image, areas, first);
  train.write(std::string(argv[3]) + "/train.h5");
  valid.write(std::string(argv[3]) + "/valid.h5");
  std::cout << (variance(valid.grey) + variance(valid.spread)) / 2 << "\n";
} catch (const std::exception& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
