#include <fmt/core.h>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/data/scan/survey.hpp"
#include "millrace/train/session/data_sets.hpp"
#include "millrace/watchdog/watchdog.hpp"

namespace millrace {

void warn_of_data(const World& world, const RunConfig& config, const DataSets& sets) {
  const ShardIndex& data = sets.train;
  if (config.train.global_batch > data.rows)
    log::warn(
        fmt::format("train.global_batch = {} is more than the {} samples of data.train, so each step takes all "
                    "of them. lower it",
                    config.train.global_batch, data.rows));
  for (const std::string& concern : layout_concerns(data)) log::warn("data.train: " + concern);
  if (world.rank() != 0 || !has_plain_targets(data)) return;
  const watchdog::WaitScope waits(watchdog::Wait::file);
  try {
    if (written_by_pack(data)) return;
    for (const std::string& concern : concerns(data, survey_targets(data))) log::warn("data.train: " + concern);
  } catch (const Error&) {  // the reader reports files that cannot be read
  }
}

}  // namespace millrace
