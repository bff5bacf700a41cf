// Imports JPEG and PNG files inside of HDF5 as rows of pixels. They are decoded and resized like images in a folder.
#include "data/pack/image_samples.hpp"
#include "data/pack/importers.hpp"
#include "data/scan/scan_file.hpp"
#include "millrace/base/error.hpp"
#include "millrace/data/read/encoded_rows.hpp"
#include "millrace/data/read/shard_files.hpp"

namespace millrace {
namespace {

class EncodedImages : public RowFile {
 public:
  EncodedImages(const Shard& shard, const std::string& dataset, const ImportOptions& o)
      : place_(shard.path + ":" + dataset),
        shard_(shard),
        fd_(open_file(shard.path)),
        samples_(o, content_of(0), place_of(shard_, 0)) {}
  std::int64_t rows() const override { return shard_.x_encoded->rows; }
  Shape row() const override { return samples_.sample(); }
  DType dtype() const override { return DType::u8; }
  bool random_access() const override { return true; }
  void read(std::int64_t begin, std::int64_t count, void* out) const override {
    ImageSamples::Maker maker(samples_);
    auto* to = static_cast<std::uint8_t*>(out);
    for (std::int64_t i = begin; i < begin + count; ++i, to += row().count())
      maker.make(content_of(i), place_of(shard_, i), to);
  }
  const std::string& path() const override { return place_; }
  std::optional<std::string> layout() const override { return "channels_last"; }

 private:
  std::string content_of(std::int64_t image) const {
    std::string out;
    read_encoded(fd_, shard_, image, out);
    return out;
  }

  const std::string place_;
  const Shard shard_;
  const FileDescriptor fd_;
  const ImageSamples samples_;
};

}  // namespace

std::unique_ptr<RowFile> open_encoded_rows(const std::string& path, const std::string& dataset,
                                           const ImportOptions& o) {
  const io::File file = io::File::open(path);
  Shard shard;
  shard.path = path;
  record_file_status(shard);
  shard.x_encoded = find_encoded(file, dataset, shard);
  if (!shard.x_encoded) return nullptr;
  if (shard.x_encoded->rows == 0) fail(Exit::data, "{}: '{}' holds no images. remove it", path, dataset);
  return std::make_unique<EncodedImages>(shard, dataset, o);
}

}  // namespace millrace
