// Rules against waiting for copies to the device.
#include <fmt/core.h>

#include <algorithm>

#include "advisor/rules/rule_lists.hpp"
#include "advisor/rules/rule_text.hpp"
#include "millrace/base/units.hpp"

namespace millrace {
namespace {

Rule pack_smaller_values() {
  return {.bound = Bound::copy,
          .key = "pack",
          .from = [](const BottleneckMetrics& e) { return "samples of " + e.config.input.value_type; },
          .to =
              [](const BottleneckMetrics& e) {
                return e.config.input.value_bytes > 2 ? Values{"u8, or i16 with data.scale and data.offset"} : Values{};
              },
          .evidence =
              [](const BottleneckMetrics& e) {
                const double samples = e.run.batch / std::max(1, e.config.machine.ranks);
                return fmt::format("{} per rank and step cross the bus",
                                   format_bytes(std::uint64_t(samples) * e.config.input.sample_bytes));
              },
          .proof = Rule::Proof::time,
          .caution = "values are stored with less precision"};
}

Rule full_pcie_link() {
  return {
      .bound = Bound::copy,
      .key = "the GPU's PCIe link",
      .from = [](const BottleneckMetrics& e) { return e.machine.pcie; },
      .to = [](const BottleneckMetrics& e) { return e.machine.pcie.empty() ? Values{} : Values{e.machine.max_pcie}; },
      .evidence =
          [](const BottleneckMetrics&) {
            return std::string("its slot, its riser or power saving limits PCI Express");
          },
      .proof = Rule::Proof::hint};
}

}  // namespace

std::vector<Rule> copy_rules() { return {pack_smaller_values(), full_pcie_link()}; }

}  // namespace millrace
