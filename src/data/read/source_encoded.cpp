// Samples that are JPEG or PNG files: read by pread, decoded by the workers into the slot. Which part of an image a
// sample is depends on its number, the epoch and the seed alone. Far more time goes into decoding than into reading, so
// there is one engine; the kernel is told of images that a worker has begun before it decodes them.
#include <fcntl.h>

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
      to_x += index_.sample_bytes(), to_y += targets_.bytes();
    }
  }

  std::unique_ptr<ReadQueue> make_read_queue(std::span<char>) override { return std::make_unique<Ahead>(*this); }
  void reopen(std::size_t s) override { files_.reopen(s); }
  DecodeStats decoded() const override { return {0, decoding_.seconds()}; }

  std::string describe() const override {
    return cat("direct: ", describe_storage(index_), " to ", index_.sample.str(), ", ", shard_count_text(index_),
               targets_.in_memory() ? ", y in memory" : "");
  }

 private:
  struct Begun {
    std::span<const std::int64_t> ids;
    void *x = nullptr, *y = nullptr;
    std::int64_t epoch = 0;
  };
  class Ahead : public ReadQueue {
   public:
    explicit Ahead(EncodedSource& source) : source_(source) {}
    void epoch(std::int64_t e) override { epoch_ = e; }
    void begin(std::span<const std::int64_t> ids, void* x, void* y) override {
      begun_[count_++ % begun_.size()] = {ids, x, y, epoch_};
      source_.announce(ids);
    }
    bool can_submit() const override { return count_ - finished_ < begun_.size(); }
    void finish() override {
      const Begun b = begun_[finished_++ % begun_.size()];
      source_.read_epoch(b.epoch, b.ids, b.x, b.y);
    }

   private:
    EncodedSource& source_;
    std::array<Begun, 4> begun_;
    std::size_t count_ = 0, finished_ = 0;
    std::int64_t epoch_ = 0;
  };

  // Advice: where a file cannot be opened, reading it says so.
  void announce(std::span<const std::int64_t> ids) try {
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
  ChunkedReader chunks_{16u << 20};  // of y
  Targets targets_{index_, files_, chunks_};
};

}  // namespace

std::unique_ptr<Source> make_encoded_source(const ShardIndex& index) { return std::make_unique<EncodedSource>(index); }

}  // namespace millrace
