// EventFile: scalars as TensorBoard reads them: records of TFRecord's framing, each an Event message. Nothing of it
// ends a run: a failure is warned of once, after which a full disk is tried again, with a MiB of events waiting at
// most, and another fault is not.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace millrace {

struct Scalar {
  std::string_view tag;  // "train/loss"
  double value = 0;      // kept as float32, NaN too
};

class EventFile {
 public:
  // A file of its own for each start of a run, made with the first event and named so that TensorBoard reads it after
  // those that lie in the folder. It begins with the mark by which TensorBoard forgets what it saw of steps from
  // first_step on: those past the checkpoint that the run goes on from. first_step 1: the folder's files of another
  // training are removed.
  EventFile(std::filesystem::path folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // At most a few per step; on disk within two seconds of steps, or 64 KiB.
  void add(std::int64_t step, double wall_time, std::span<const Scalar>);  // wall_time: seconds since 1970
  void flush();
  void sync();  // flushed to the disk, too

 private:
  void begin_file(double wall_time);
  void record(std::size_t begin);  // makes one of what waits from `begin` on
  bool open();
  void trouble(const char* doing);  // by errno
  std::filesystem::path folder_, path_;
  std::int64_t first_step_;
  std::string waiting_;
  double flushed_ = 0;
  int file_ = -1;
  enum class State { fresh, open, given_up } state_ = State::fresh;
  bool full_ = false, said_ = false;  // the disk is; a failure was
};

}  // namespace millrace
