// Samples that are JPEG or PNG images: read by pread, then decoded by the workers into the slot. The crop of an image
// depends only on the sample's id, the epoch and the seed. Decoding takes far longer than reading, so there is only one
// engine. Before a worker decodes images, it asks the kernel to read the next ones ahead.
#include <fcntl.h>
#include <fmt/core.h>

#include <array>

#include "millrace/base/error.hpp"
#include "millrace/data/decode/busy_clock.hpp"
#include "millrace/data/decode/image_crops.hpp"
#include "millrace/data/read/encoded_rows.hpp"
#include "millrace/data/read/shard_files.hpp"
#include "millrace/data/read/sources.hpp"

namespace millrace {
namespace {

class EncodedSource : public Source {
 public:
  explicit EncodedSource(const ShardIndex& index)
      : index_(index),
        resize_crop_(resize_crop_for(index.decode.resize, index.decode.crop, "data.resize", "data.crop",
                                     index.sample[0], index.sample[1])) {}

  void read(std::span<const std::int64_t> ids, void* x, void* y) override { read_epoch(0, ids, x, y); }
  void read_epoch(std::int64_t epoch, std::span<const std::int64_t> ids, void* x, void* y) override {
    thread_local std::string content;
    thread_local Image scratch;
    auto* to_x = static_cast<std::uint8_t*>(x);
    char* to_y = static_cast<char*>(y);
    for (const std::int64_t id : ids) {
      const std::size_t s = shard_of(index_, id);
      const Shard& shard = index_.shards[s];
      read_encoded(files_.open(s), shard, id, content);
      const std::string place = place_of(shard, id);
      const auto view = [&](std::int64_t height, std::int64_t width) {
        return index_.decode.min_area > 0
                   ? random_resized_crop_grid(index_.decode, std::uint64_t(epoch), id, resize_crop_, height, width)
                   : center_crop_grid(resize_crop_, height, width, place);
      };
      {
        const BusyClock::Scope busy(decoding_);
        decode_and_resample(content, place, view, DecodeExtent::needed, scratch, to_x);
      }
      targets_.read(s, id, 1, to_y);
      to_x += index_.sample_bytes();
      to_y += targets_.bytes();
    }
  }

  std::unique_ptr<ReadQueue> make_read_queue(std::span<char>) override {
    return std::make_unique<ReadAheadQueue>(*this);
  }
  void reopen(std::size_t s) override { files_.reopen(s); }
  DecodeStats decoded() const override { return {0, decoding_.seconds()}; }

  std::string describe() const override {
    return fmt::format("direct: {} to {}, {}{}", describe_storage(index_), index_.sample.str(),
                       shard_count_text(index_), targets_.in_memory() ? ", y in memory" : "");
  }

 private:
  struct Request {
    std::span<const std::int64_t> ids;
    void *x = nullptr, *y = nullptr;
    std::int64_t epoch = 0;
  };
  class ReadAheadQueue : public ReadQueue {
   public:
    explicit ReadAheadQueue(EncodedSource& source) : source_(source) {}
    void epoch(std::int64_t e) override { epoch_ = e; }
    void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
      requests_[begun_++ % requests_.size()] = {ids, x, y, epoch_};
      source_.read_ahead(ids);
    }
    bool can_submit() const override { return begun_ - finished_ < requests_.size(); }
    void finish() override {
      const Request r = requests_[finished_++ % requests_.size()];
      source_.read_epoch(r.epoch, r.ids, r.x, r.y);
    }

   private:
    EncodedSource& source_;
    std::array<Request, 4> requests_;
    std::size_t begun_ = 0, finished_ = 0;
    std::int64_t epoch_ = 0;
  };

  // Only advice: the read itself reports a file that cannot be opened.
  void read_ahead(std::span<const std::int64_t> ids) try {
    for (const std::int64_t id : ids) {
      const std::size_t s = shard_of(index_, id);
      const FileDescriptor fd = files_.open(s);
      const EncodedRow row = encoded_row(fd, index_.shards[s], id);
      ::posix_fadvise(fd, off_t(row.offset), off_t(row.bytes), POSIX_FADV_WILLNEED);
    }
  } catch (const Error&) {
  }

  const ShardIndex index_;
  const ResizeCrop resize_crop_;
  ShardFiles files_{index_};
  BusyClock decoding_;
  ChunkedReader chunks_{16u << 20};  // for y
  Targets targets_{index_, files_, chunks_};
};

}  // namespace

std::unique_ptr<Source> make_encoded_source(const ShardIndex& index) { return std::make_unique<EncodedSource>(index); }

}  // namespace millrace
