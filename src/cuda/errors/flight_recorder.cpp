#include "cuda/errors/flight_recorder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "millrace/base/error.hpp"

namespace millrace::cuda {
namespace {

// A place holds the number of the step, from 1, in the upper 32 bits. The lower bits count the operations of the step
// that have begun. The bit between them is set in a graph, where one more operation may have begun.
constexpr int operation_bits = 32;
constexpr std::uint64_t graph_bit = std::uint64_t(1) << (operation_bits - 1);
std::uint64_t place_of(std::size_t step, std::size_t begun, FlightRecorder::Launch launch) {
  const std::uint64_t graph = launch == FlightRecorder::Launch::as_graph ? graph_bit : 0;
  return (std::uint64_t(step) + 1) << operation_bits | graph | std::uint64_t(begun);
}

std::uint64_t read(std::uint64_t& word) { return std::atomic_ref<std::uint64_t>(word).load(); }

}  // namespace

FlightRecorder::FlightRecorder(Detail detail, Breadcrumb* breadcrumb, WriteBreadcrumb write)
    : detail_(detail), breadcrumb_(breadcrumb), write_breadcrumb_(std::move(write)) {
  MR_CHECK(detail_ == Detail::none || breadcrumb_);
}

std::size_t FlightRecorder::add(const std::string& step) {
  const std::lock_guard lock(mutex_);
  known_.push_back({step, {}});
  return known_.size() - 1;
}

void FlightRecorder::begin(std::size_t number, Launch launch) {
  if (detail_ == Detail::none) return;
  recording_ = true;
  launch_ = launch;
  number_ = number;
  next_ = 0;
  write_breadcrumb_(place_of(number, 0, launch), Write::begin);
}

void FlightRecorder::join() {
  if (!std::exchange(on_branch_, false)) return;
  write_breadcrumb_(0, Write::join);
}

void FlightRecorder::end() {
  if (!recording_) return;
  join();
  write_breadcrumb_(0, Write::in_stream);
}

void FlightRecorder::leave() noexcept {
  recording_ = false;
  try {
    join();  // after an exception: a capture cannot end with an open branch
  } catch (const Error&) {
    // The exception says more.
  }
}

void FlightRecorder::enter_operation(const char* name) {
  if (!recording_) return;
  {
    const std::lock_guard lock(mutex_);
    auto& operations = known_[number_].operations;
    if (next_ == operations.size())
      operations.emplace_back(name);
    else if (operations[next_] != name)
      operations[next_] = name;
  }
  ++next_;
  join();
  if (detail_ != Detail::each && next_ % breadcrumb_interval != 0) return;
  on_branch_ = launch_ == Launch::as_graph;
  write_breadcrumb_(place_of(number_, next_, launch_), on_branch_ ? Write::on_branch : Write::in_stream);
}

void FlightRecorder::begin_run(const std::string& label) {
  if (detail_ == Detail::none) return;
  const std::lock_guard lock(mutex_);
  ++runs_;
  labels_[runs_ % labels_.size()] = label;
}

void FlightRecorder::set_concurrent_work(std::function<std::string()> name) {
  const std::lock_guard lock(mutex_);
  concurrent_work_ = std::move(name);
}

std::optional<FlightRecorder::Place> FlightRecorder::place() const {
  if (detail_ == Detail::none) return std::nullopt;
  const std::uint64_t word = read(breadcrumb_->place), run = read(breadcrumb_->runs);
  if (word == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const std::size_t number = std::size_t(word >> operation_bits) - 1;
  const std::size_t begun = std::size_t(word & (graph_bit - 1)), ahead = word & graph_bit ? 1 : 0;
  if (number >= known_.size()) return std::nullopt;
  const KnownStep& known = known_[number];
  const auto& operations = known.operations;
  Place place;
  const std::string& label = labels_[run % labels_.size()];
  if (run <= runs_ && runs_ - run < labels_.size() && !label.empty()) place.text = label + ", ";
  // The fault is in the operation of the last breadcrumb or, with `some`, in one of those before the next breadcrumb.
  // Before the first operation, it is in work without a label. In a graph the next breadcrumb may be missing.
  const std::size_t first = std::max<std::size_t>(begun, 1) - 1;
  const std::size_t until = detail_ == Detail::each ? begun : begun + breadcrumb_interval - 1;
  const std::size_t last = std::min(until + ahead, operations.size());
  if (last <= first)
    place.text += "the beginning of the captured " + known.name;
  else if (last == first + 1)
    place.text += operations[first];
  else if (detail_ == Detail::each)
    place.text += operations[first] + " or " + operations[first + 1];
  else
    place.text += fmt::format("one of the {} from {} to {}", last - first, operations[first], operations[last - 1]);
  place.exact = detail_ == Detail::each || last <= first + 1;
  const std::string concurrent = concurrent_work_ ? concurrent_work_() : "";
  if (!concurrent.empty()) place.text += ", while " + concurrent + " was running";
  return place;
}

}  // namespace millrace::cuda
