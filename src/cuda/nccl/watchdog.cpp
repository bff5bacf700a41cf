#include "cuda/nccl/watchdog.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "millrace/base/error.hpp"
#include "millrace/base/units.hpp"

namespace millrace::cuda {
namespace {

std::string place_of(const Watchdog::StalledOperation& late) {
  const std::string name = Watchdog::name_of(late.kind, late.tag, late.bytes);
  if (!late.recorded || late.kind == Watchdog::Kind::replay) return name;
  return fmt::format("{}{} of a captured step", late.begun ? "" : "the gradients of ", name);
}

}  // namespace

std::string Watchdog::name_of(Kind kind, int tag, std::size_t bytes) {
  switch (kind) {
    case Kind::sum:
      return fmt::format("all-reduce {} ({})", tag, format_bytes(bytes));
    case Kind::reduce_scatter:
      return fmt::format("reduce-scatter {} ({})", tag, format_bytes(bytes));
    case Kind::all_gather:
      return fmt::format("all-gather {} ({})", tag, format_bytes(bytes));
    case Kind::broadcast:
      return fmt::format("broadcast ({})", format_bytes(bytes));
    case Kind::step:
      return "the end of the collectives of a step";
    case Kind::replay:
      return "the collectives of a captured step";
  }
  return "";
}

std::uint64_t Watchdog::begin(Kind kind, int tag, std::size_t bytes, double now) {
  begun_.push_back({kind, tag, bytes, now});
  return done_ + begun_.size();
}

void Watchdog::done(std::uint64_t number, double now) {
  MR_CHECK(number <= done_ + begun_.size());
  while (done_ < number) {
    begun_.pop_front();
    ++done_;
    progress_ = now;
  }
}

void Watchdog::replays(const Replays& r, double now) {
  const auto at = [](const Replays& x) { return std::array{x.begun, x.ended, x.operations_begun, x.operations_ended}; };
  if (at(r) != at(replays_)) replays_changed_ = now;
  replays_ = r;
}

std::optional<Watchdog::StalledOperation> Watchdog::late(double now) const {
  const Replays& r = replays_;
  if (r.begun != r.ended && now - replays_changed_ > timeout_) {
    StalledOperation late{
        true, r.operations_begun != r.operations_ended, Kind::replay, 0, 0, now - replays_changed_, r.ended, 0};
    if (r.known) {
      late.kind = r.kind;
      late.tag = r.tag;
      late.bytes = r.bytes;
      late.done = r.operations_ended;
    }
    return late;
  }
  if (begun_.empty()) return std::nullopt;
  const Begun& oldest = begun_.front();
  const double seconds = now - std::max(oldest.at, progress_);
  if (seconds <= timeout_) return std::nullopt;
  return StalledOperation{false, true, oldest.kind, oldest.tag, oldest.bytes, seconds, done_, begun_.size() - 1};
}

std::string Watchdog::explain(const StalledOperation& late, const std::string& who) const {
  return fmt::format(
      "waited {} s for {} on the GPU ({}; {} operations completed before, {} more begun). find out what delayed it, or "
      "raise comm.timeout",
      int(late.seconds), place_of(late), who, late.done, late.waiting);
}

}  // namespace millrace::cuda
