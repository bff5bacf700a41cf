// The small values of a step: what a Network exchanges with the host, and what it prepares for an all-reduce.
#include <cstddef>

#include "millrace/train/session/network.hpp"

namespace millrace {

void Network::write_step(int parity) { pushed_.as<StepState>()[parity] = host_state_; }

void Network::push_step(int parity) {
  compute_.device->copy_small(Stream::compute, state_.data(), pushed_.as<StepState>() + parity,
                              StepState::host_bytes());
}

void Network::push_state() {
  compute_.device->copy_to_device(Stream::compute, state_.data(), &host_state_, sizeof(StepState));
  compute_.device->synchronize();
}

void Network::copy_state_to_host(int parity) {
  compute_.device->copy_small(Stream::compute, state_copies_.as<StepState>() + parity, state_.data(),
                              sizeof(StepState));
  state_ready_[std::size_t(parity)]->record(Stream::compute);
}

const StepState& Network::read_state(int parity) {
  state_ready_[std::size_t(parity)]->synchronize();
  return state_copies_.as<StepState>()[parity];
}

void Network::clear_statistics() {
  if (stats.data) compute_.device->fill_zero(Stream::compute, stats.data, std::size_t(layout_.stats_count) * 4);
}

void Network::copy_loss_weight() {
  const char* from = static_cast<const char*>(state_.data()) + offsetof(StepState, losses[0].weight);
  compute_.device->copy_small(Stream::compute, loss_weight.data, from, sizeof(double));
}

void Network::clear_metrics(const std::map<std::size_t, std::vector<double>>& origins) {
  if (needs_.metrics == 0) return;
  compute_.device->fill_zero(Stream::compute, metrics_.data(), needs_.metrics);
  for (const auto& [place, values] : origins)
    compute_.device->copy_to_device(Stream::compute, metrics_.as<double>() + place, values.data(),
                                    values.size() * sizeof(double));
  if (!origins.empty()) compute_.device->synchronize();
}

std::vector<std::uint64_t> Network::read_metrics() {
  std::vector<std::uint64_t> out(needs_.metrics / sizeof(std::uint64_t));
  if (out.empty()) return out;
  compute_.device->copy_to_host(Stream::compute, out.data(), metrics_.data(), needs_.metrics);
  compute_.device->synchronize();
  return out;
}

}  // namespace millrace
