#include <fmt/core.h>

#include <algorithm>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/data/scan/survey.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {
namespace {

void warn_of_targets(const World& world, const ShardIndex& data, Loss loss, bool packed) {
  if (world.rank() != 0 || !has_plain_targets(data)) return;
  const watchdog::WaitScope waits(watchdog::Wait::file);
  try {
    if (written_by_pack(data) != packed) return;
    for (const std::string& concern : concerns(data, survey_targets(data)))
      if (loss != Loss::binary_cross_entropy || concern.find("model.loss") == concern.npos)
        log::warn("data.train: " + concern);
  } catch (const Error&) {  // the reader reports files that cannot be read
  }
}

}  // namespace

void warn_of_data(const World& world, const RunConfig& config, const DataSets& sets) {
  const ShardIndex& data = sets.train;
  if (config.train.global_batch > data.rows)
    log::warn(
        fmt::format("train.global_batch = {} is more than the {} samples of data.train, so each step takes all "
                    "of them. lower it",
                    config.train.global_batch, data.rows));
  constexpr float least_deviation = 1.1e-6f;  // smaller ones are raised to 1e-6 when they are measured
  if (const auto& deviations = data.values.std;
      data.rows > 1 && !deviations.empty() &&
      *std::max_element(deviations.begin(), deviations.end()) <= least_deviation)
    log::warn(
        fmt::format("data.train: '{}': the values of every channel differ by less than 1e-6, so there is nothing to "
                    "learn from. correct or scale them",
                    data.x.name));
  for (const std::string& concern : layout_concerns(data)) log::warn("data.train: " + concern);
  warn_of_targets(world, data, config.model.loss, false);
}

void warn_of_packed_targets(const World& world, const DataSets& sets) {
  warn_of_targets(world, sets.train, Loss::automatic, true);
}

}  // namespace millrace
