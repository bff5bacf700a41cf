#include "train/resume.hpp"

#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/config/keys.hpp"

namespace millrace {
namespace {

using Keys = std::map<std::string, std::string>;

// The keys of a resolved configuration; the elements of a list are joined.
Keys keys_of(const std::string& config) {
  Keys out;
  std::string section;
  std::istringstream lines(config);
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find(" = ");
    if (line.starts_with("["))
      section = line.substr(1, line.find(']') - 1);
    else if (!line.starts_with("#") && equals != std::string::npos) {
      std::string& value = out[current_key_name(section + "." + line.substr(0, equals))];
      value += (value.empty() ? "" : "; ") + line.substr(equals + 3);
    }
  }
  return out;
}

// Of keys that decide what is learned and are not in the provenance.
bool decides(const std::string& key) {
  for (const char* not_so :
       {"data.train",         "data.valid",       "data.sample",       "data.patch",        "data.holdout",
        "data.lead",          "data.window",      "data.stride",       "data.shuffle",      "data.shuffle_window",
        "data.shuffle_block", "data.chunk_cache", "data.cache",        "data.cache_budget", "data.manifest_cache",
        "data.reader",        "data.workers",     "data.prefetch",     "data.skip_limit",   "data.retries",
        "data.retry_delay",   "data.slow_read",   "data.read_timeout", "train.steps",       "train.global_batch",
        "train.micro_batch",  "train.balance",    "train.evaluate"})
    if (key == not_so) return false;
  return key.starts_with("data.") || key.starts_with("model.") || key.starts_with("train.") ||
         key.starts_with("optim.");
}

std::string changed_keys(const std::string& then, const std::string& now) {
  const Keys before = keys_of(then), after = keys_of(now);
  std::string out;
  for (const auto& [key, value] : after) {
    const auto it = before.find(key);
    if (!decides(key) || it == before.end() || it->second == value) continue;
    out += cat(out.empty() ? "" : ", ", key, " (", it->second, " then, ", value, " now)");
  }
  return out;
}

}  // namespace

void resume_from(const RunState& run, Session& s) {
  Keys then = run.provenance;
  if (!then.contains("order"))  // of versions that knew two
    then["order"] = keys_of(run.config)["data.shuffle"] == "off" ? "as stored" : "global";
  then.emplace("sample", SampleView{}.str());  // of versions that knew rows alone
  const auto changed = [&](const char* key) {
    const auto it = then.find(key);
    return it != then.end() && it->second != s.provenance().at(key);
  };
  const bool other_batch = changed("global_batch"), other_samples = changed("sample"), other_data = changed("data"),
             other_order = changed("order");
  s.batching.epochs.origin = run.origin;
  if (other_batch || other_samples || other_data || other_order) {
    if (run.step_in_epoch != 0)
      fail(Exit::config, s.config.run.dir, " stopped ", run.step_in_epoch, " steps into epoch ", run.epoch,
           other_batch ? cat(", with train.global_batch ", then.at("global_batch"), ", now ", s.batching.global_batch)
           : other_samples
               ? cat(", with other samples (", then.at("sample"), " then, ", s.provenance().at("sample"), " now)")
           : other_data ? cat(", with other files in data.train")
                        : cat(", with another order of samples (", then.at("order"), " then, ",
                              s.provenance().at("order"), " now)"),
           ": samples would be skipped or repeated. set it back, at least to the end of that epoch, or give this run "
           "another run.dir");
    s.batching.epochs.origin = {run.step, run.epoch, run.samples};
  }
  for (const auto& [key, value] : s.provenance())
    if (const auto it = then.find(key); it != then.end() && it->second != value)
      log::warn(cat("resuming with another ", key, " (", it->second, " then, ", value,
                    " now): the run goes on, but not bit for bit"));
  if (const std::string keys = changed_keys(run.config, s.config.text); !keys.empty())
    log::warn(cat("resuming with another ", keys));
}

}  // namespace millrace
