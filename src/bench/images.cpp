#include <fmt/core.h>

#include "bench/loader_harness.hpp"
#include "millrace/base/clock.hpp"
#include "millrace/base/error.hpp"
#include "millrace/bench/loader.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/read/encoded_rows.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {
namespace {

// The first images of the data set, in memory.
class Images {
 public:
  explicit Images(const ShardIndex& index)
      : index_(index),
        resize_crop_(resize_crop_for(index.decode.resize, index.decode.crop, "--resize", "--crop", index.sample[0],
                                     index.sample[1])),
        out_(index.sample_bytes()) {
    ShardFiles files(index);
    for (std::int64_t id = 0; id < std::min<std::int64_t>(index.rows, 256); ++id) {
      const std::size_t s = shard_of(index, id);
      read_encoded(files.open(s), index.shards[s], id, content_.emplace_back());
      bytes_ += double(content_.back().size());
    }
  }

  // Images per second of CPU time of this thread. round: selects the random crops.
  double rate(DecodeExtent extent, std::uint64_t round) {
    const double began = thread_cpu_seconds();
    for (std::size_t i = 0; i < content_.size(); ++i)
      decode_and_resample(
          content_[i], "an image of the benchmark",
          [&](std::int64_t height, std::int64_t width) {
            pixels_ += double(height * width);
            ++decoded_;
            return index_.decode.min_area > 0
                       ? random_resized_crop_grid(index_.decode, round, std::int64_t(i), resize_crop_, height, width)
                       : center_crop_grid(resize_crop_, height, width, "an image of the benchmark");
          },
          extent, scratch_, out_.data());
    return double(content_.size()) / (thread_cpu_seconds() - began);
  }

  // Call after rate(): the mean size of an image is known then.
  std::string describe() const {
    return fmt::format("images of {} k pixels in {} KiB, to {}{}", std::int64_t(pixels_ / decoded_ / 1000),
                       std::int64_t(bytes_ / double(content_.size()) / 1024), index_.sample.str(),
                       index_.decode.min_area > 0
                           ? fmt::format(", random crops of at least {:g} of the area", index_.decode.min_area)
                           : "");
  }

 private:
  const ShardIndex& index_;
  const ResizeCrop resize_crop_;
  std::vector<std::uint8_t> out_;
  std::vector<std::string> content_;
  Image scratch_;
  double bytes_ = 0, pixels_ = 0, decoded_ = 0;
};

}  // namespace

ImageBench bench_images(Device& device, const ShardIndex& index, int workers, int prefetch, int repeats) {
  if (!index.encoded())
    fail(Exit::config, "bench loader: --data does not contain encoded images. name shards made with pack --encoded");
  Images images(index);
  const std::int64_t micro_batch = std::min<std::int64_t>(32, index.rows);
  std::vector<double> complete, needed, loader;
  for (int round = 0; round < repeats; ++round) {
    complete.push_back(images.rate(DecodeExtent::plain, std::uint64_t(round)));
    needed.push_back(images.rate(DecodeExtent::needed, std::uint64_t(round)));
    EngineUnderTest engine(device, index, index.rows, micro_batch, workers, prefetch, Reader::automatic);
    const std::int64_t samples = std::max<std::int64_t>(micro_batch, std::min<std::int64_t>(1024, 2 * index.rows));
    loader.push_back(double(samples) / engine.seconds(samples));
  }
  return {images.describe(), median(complete), median(needed), median(loader), workers};
}

std::string ImageBench::str() const {
  return fmt::format(
      "{}\n  {:<50} {:9.0f} samples/s\n  {:<50} {:9.0f} samples/s  {:.2f} x\n  {:<50} {:9.0f} samples/s\n", what,
      "one thread, complete images", complete, "one thread, only what samples need", needed, needed / complete,
      fmt::format("loader, {}{}", workers, workers == 1 ? " worker" : " workers").c_str(), loader);
}

}  // namespace millrace
