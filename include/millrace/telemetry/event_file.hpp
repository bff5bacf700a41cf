// EventFile: writes scalars in the format of TensorBoard, that is, Event messages in the record framing of TFRecord. A
// failure never ends a run and is reported by one warning. If the disk is full, at most 1 MiB of events waits until
// there is space again. After any other failure, no more events are written.
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
  // Each launch of a run writes its own file. It is created with the first event, and its name sorts after those of the
  // files in the folder, so that TensorBoard reads it last. It begins with an event that makes TensorBoard forget all
  // steps from first_step on: those after the checkpoint that the run resumes from. first_step 1: a new training; the
  // event files in the folder are removed.
  EventFile(std::filesystem::path folder, std::int64_t first_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // Call at most a few times per step. Events reach the disk after two seconds or 64 KiB.
  void add(std::int64_t step, double wall_time, std::span<const Scalar>);  // wall_time: seconds since 1970
  void flush();
  void sync();  // flush(), and forces the file to disk

 private:
  void begin_file(double wall_time);
  void frame_record(std::size_t begin);  // adds the framing to the message that begins at `begin`
  bool open();
  void fail_with_errno(const char* action);  // warns, and stops writing unless the disk is full
  std::filesystem::path folder_, path_;
  std::int64_t first_step_;
  std::string waiting_;
  double flushed_ = 0;
  int file_ = -1;
  enum class State { no_file, open, disabled } state_ = State::no_file;
  bool disk_full_ = false, warned_ = false;
};

}  // namespace millrace
