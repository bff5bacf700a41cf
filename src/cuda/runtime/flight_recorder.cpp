#include "cuda/runtime/flight_recorder.hpp"

#include <algorithm>
#include <atomic>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

// A place is a recording's number from 1 on, and how many of its pieces have begun.
constexpr int piece_bits = 32;
std::uint64_t place_of(std::size_t recording, std::size_t begun) {
  return (std::uint64_t(recording) + 1) << piece_bits | std::uint64_t(begun);
}

std::uint64_t read(std::uint64_t& word) { return std::atomic_ref<std::uint64_t>(word).load(); }

}  // namespace

FlightRecorder::FlightRecorder(Detail detail, Breadcrumb* words, WriteBreadcrumb leave)
    : detail_(detail), breadcrumb_(words), write_breadcrumb_(std::move(leave)) {
  MR_CHECK(detail_ == Detail::none || breadcrumb_);
}

std::size_t FlightRecorder::add(const std::string& recording) {
  const std::lock_guard lock(mutex_);
  known_.push_back({recording, {}});
  return known_.size() - 1;
}

void FlightRecorder::begin(std::size_t number) {
  if (detail_ == Detail::none) return;
  open_ = true, number_ = number, next_ = 0;
  write_breadcrumb_(place_of(number, 0), true);
}

void FlightRecorder::end() {
  if (open_) write_breadcrumb_(0, false);
}

void FlightRecorder::enter_operation(const char* piece) {
  if (!open_) return;
  {
    const std::lock_guard lock(mutex_);
    auto& pieces = known_[number_].pieces;
    if (next_ == pieces.size())
      pieces.emplace_back(piece);
    else if (pieces[next_] != piece)
      pieces[next_] = piece;
  }
  ++next_;
  if (detail_ == Detail::each || next_ % breadcrumb_interval == 0) write_breadcrumb_(place_of(number_, next_), false);
}

void FlightRecorder::begin_run(const std::string& step) {
  if (detail_ == Detail::none) return;
  const std::lock_guard lock(mutex_);
  steps_[++runs_ % steps_.size()] = step;
}

void FlightRecorder::set_concurrent_work(std::function<std::string()> told) {
  const std::lock_guard lock(mutex_);
  beside_ = std::move(told);
}

std::optional<FlightRecorder::Place> FlightRecorder::place() const {
  if (detail_ == Detail::none) return std::nullopt;
  const std::uint64_t word = read(breadcrumb_->place), run = read(breadcrumb_->runs);
  if (word == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const std::size_t number = std::size_t(word >> piece_bits) - 1, begun = std::size_t(word & 0xffffffffu);
  if (number >= known_.size()) return std::nullopt;
  const RecordedCapture& known = known_[number];
  const auto& pieces = known.pieces;
  Place place;
  const std::string& step = steps_[run % steps_.size()];
  if (run <= runs_ && runs_ - run < steps_.size() && !step.empty()) place.text = step + ", ";
  // The piece of the mark, and with `some` those up to the next mark. Before the first: what has no name.
  const std::size_t first = std::max<std::size_t>(begun, 1) - 1;
  const std::size_t last = std::min(detail_ == Detail::each ? begun : begun + breadcrumb_interval - 1, pieces.size());
  if (last <= first)
    place.text += "the beginning of the recorded " + known.name;
  else if (last == first + 1)
    place.text += pieces[first];
  else
    place.text += cat("one of the ", last - first, " from ", pieces[first], " to ", pieces[last - 1]);
  place.exact = last <= first + 1;
  if (const std::string also = beside_ ? beside_() : ""; !also.empty()) place.text += ", beside " + also;
  return place;
}

}  // namespace millrace::cuda
