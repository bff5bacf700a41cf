// Files of other programs give the same samples when they are packed on several ranks as when they are read in place.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "millrace/base/rng.hpp"
#include "millrace/data/open/open_source.hpp"
#include "millrace/data/pack/pack.hpp"
#include "millrace/data/read/source.hpp"
#include "millrace/data/scan/index_shards.hpp"
#include "millrace/io/hdf5.hpp"
#include "mpi/shared_folder.hpp"
#include "mpi/world.hpp"

namespace millrace {
namespace pack_pixels_test {

namespace fs = std::filesystem;
using test::everywhere;
using test::SharedFolder;

// Returns all samples by their label, which is the row of the input, with channels last, as double.
std::vector<std::vector<double>> samples_of(World& world, const ShardIndex& d) {
  const auto source = make_source(world, d, Reader::automatic);
  const std::size_t count = std::size_t(d.sample.count()), channels = std::size_t(d.sample[-1]),
                    pixels = count / channels;
  std::vector<std::vector<double>> out(std::size_t(d.rows), std::vector<double>(count));
  std::vector<char> raw(d.sample_bytes());
  for (std::int64_t id = 0; id < d.rows; ++id) {
    std::int32_t row = 0;
    source->read({&id, 1}, raw.data(), &row);
    for (std::size_t p = 0; p < pixels; ++p)
      for (std::size_t c = 0; c < channels; ++c) {
        const std::size_t at = d.x.channels_first ? c * pixels + p : p * channels + c;
        out[std::size_t(row)][p * channels + c] =
            d.x.dtype == DType::u8 ? std::uint8_t(raw[at]) : reinterpret_cast<const float*>(raw.data())[at];
      }
  }
  return out;
}

// A file of another program is read in place, and is packed and then read, on any number of ranks.
TEST(PackMpi, PackedPixelsEqualThoseReadInPlace) {
  World& world = test_world();
  const SharedFolder folder(world);
  struct Case {
    std::vector<std::int64_t> shape;  // of a sample, as stored
    DType dtype;
    std::string attribute;
    Shape logical;
  };
  const Case cases[] = {
      {{3, 12, 10}, DType::u8, "", {12, 10, 3}},       {{12, 10, 3}, DType::u8, "", {12, 10, 3}},
      {{12, 10}, DType::u8, "", {12, 10, 1}},          {{5, 6, 7}, DType::f32, "channels_first", {6, 7, 5}},
      {{64, 2}, DType::f32, "channels_last", {64, 2}}, {{3, 40}, DType::f32, "channels_first", {40, 3}},
      {{1, 6, 5, 7}, DType::f32, "", {6, 5, 7, 1}},    {{33}, DType::u8, "", {33}}};
  for (std::size_t k = 0; k < std::size(cases); ++k) {
    const Case& c = cases[k];
    constexpr std::int64_t rows = 37;
    const std::string foreign = (folder.path / fmt::format("foreign{}.h5", k)).string();
    if (world.rank() == 0) {
      fs::create_directories(folder.path);
      io::File file = io::File::create(foreign);
      std::vector<std::int64_t> shape{rows};
      shape.insert(shape.end(), c.shape.begin(), c.shape.end());
      std::vector<float> x(std::size_t(rows * c.logical.count()));
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = float(philox(1, i, 0).v[0] % 251);
      std::vector<std::int64_t> y(rows);
      for (std::size_t r = 0; r < rows; ++r) y[r] = std::int64_t(r);
      file.create_dataset("/x", c.dtype, shape);
      file.create_dataset("/y", DType::i64, {rows});
      file.write_rows("/x", 0, rows, DType::f32, x.data());
      file.write_rows("/y", 0, rows, DType::i64, y.data());
      if (!c.attribute.empty()) file.set("/", "layout", c.attribute);
      file.close();
    }
    world.barrier();
    const fs::path out = folder.path / fmt::format("packed{}", k);
    ImportOptions input;
    input.x = {foreign};
    pack(world, *make_importer(input), {.out = out, .shard_bytes = 9000});
    ShardIndex in_place = index_shards(world, {.paths = {foreign}});
    measure_statistics(world, in_place);
    const ShardIndex packed = index_shards(world, {.paths = {(out / "train-*.h5").string()}});
    everywhere(world, in_place.sample == c.logical, "in place: " + in_place.sample.str());
    everywhere(world, packed.sample == c.logical, "packed: " + packed.sample.str());
    everywhere(world, packed.x.channels_first == in_place.x.channels_first, "layout");
    everywhere(world, packed.values.scale == in_place.values.scale, "scale");
    bool near = packed.values.mean.size() == in_place.values.mean.size();
    for (std::size_t m = 0; near && m < packed.values.mean.size(); ++m)
      near = std::abs(packed.values.mean[m] - in_place.values.mean[m]) < 1e-9 * (1 + std::abs(packed.values.mean[m])) &&
             std::abs(packed.values.std[m] - in_place.values.std[m]) < 1e-9 * (1 + packed.values.std[m]);
    everywhere(world, near, "mean and deviation");
    everywhere(world, samples_of(world, packed) == samples_of(world, in_place), "pixels of " + packed.sample.str());
  }
}

}  // namespace pack_pixels_test
}  // namespace millrace
