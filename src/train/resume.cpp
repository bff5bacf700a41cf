#include "train/resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/config/keys.hpp"
#include "millrace/weights/safetensors.hpp"

namespace millrace {
namespace {

using Keys = std::map<std::string, std::string>;

// The keys and values of a resolved configuration. The elements of a list are joined into one value.
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

// Whether the key affects what the network learns, and is not covered by the provenance.
bool decides(const std::string& key) {
  for (const char* not_so :
       {"data.train",         "data.valid",         "data.sample",       "data.patch",           "data.holdout",
        "data.lead",          "data.window",        "data.stride",       "data.shuffle",         "data.shuffle_window",
        "data.shuffle_block", "data.chunk_cache",   "data.cache",        "data.cache_budget",    "data.manifest_cache",
        "data.reader",        "data.workers",       "data.prefetch",     "data.skip_limit",      "data.retries",
        "data.retry_delay",   "data.slow_read",     "data.read_timeout", "train.steps",          "train.global_batch",
        "train.micro_batch",  "train.balance",      "train.evaluate",    "train.evaluate_every", "train.patience",
        "train.recompute",    "train.logits_memory"})
    if (key == not_so) return false;
  return key.starts_with("data.") || key.starts_with("model.") || key.starts_with("train.") ||
         key.starts_with("optim.");
}

// Whether the key changes the function that the network computes from a sample.
bool changes_function(const std::string& key) {
  for (const char* one :
       {"model.name",       "model.depth",     "model.width",        "model.stem",    "model.hidden",
        "model.activation", "model.layers",    "model.loss",         "model.size",    "model.blocks",
        "model.heads",      "model.key_heads", "model.feed_forward", "model.patch",   "model.rotary_base",
        "model.upsample",   "data.normalize",  "data.mean",          "data.std",      "data.transform",
        "data.scale",       "data.offset",     "data.channels",      "data.subvolume"})
    if (key == one) return true;
  return false;
}

// The keys with another value then and now, among those that `counts`.
std::string changed_keys(const std::string& then, const std::string& now, bool (*counts)(const std::string&)) {
  const Keys before = keys_of(then), after = keys_of(now);
  std::string out;
  for (const auto& [key, value] : after) {
    const auto it = before.find(key);
    if (!counts(key) || it == before.end() || it->second == value) continue;
    out += fmt::format("{}{} ({} then, {} now)", out.empty() ? "" : ", ", key, it->second, value);
  }
  return out;
}

// Of the elements of optim.group, which are joined by "; ".
std::string groups_with_muon(const std::string& groups) {
  std::string out;
  for (std::size_t at = 0; at < groups.size();) {
    const std::size_t end = std::min(groups.find("; ", at), groups.size());
    const std::string group = groups.substr(at, end - at);
    if (group.find("muon=") != group.npos) out += (out.empty() ? "" : "; ") + group;
    at = end + 2;
  }
  return out;
}

// The moments of matrices are not those of another optimizer.
void require_same_matrices(const Keys& then, const Keys& now) {
  const auto value = [](const Keys& keys, const char* key) {
    const auto it = keys.find(key);
    return it == keys.end() ? std::string() : it->second;
  };
  const std::string before = value(then, "optim.name"), after = value(now, "optim.name");
  if (before != after && (before == "muon" || after == "muon"))
    fail(Exit::config,
         "optim.name: the checkpoint is from {}, and its moments are of no use for {}. restore the key, or set run.dir "
         "to a new folder",
         before, after);
  if (const std::string was = groups_with_muon(value(then, "optim.group"));
      was != groups_with_muon(value(now, "optim.group")))
    fail(Exit::config,
         "optim.group: muon= cannot change, and the checkpoint has {}. restore these groups, or set run.dir to a new "
         "folder",
         was.empty() ? "no group with muon=" : was);
}

// The weights that an old run of the folder, or millrace export, wrote; "" if there are none.
std::filesystem::path old_export(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "model.safetensors";
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return {};
  try {
    require_own_safetensors(path);
  } catch (const Error&) {  // the file of another program stays
    return {};
  }
  return path;
}

}  // namespace

void require_kept(const std::string& weights, const std::filesystem::path& dir) {
  std::error_code none;
  const std::filesystem::path path = weights, exported = old_export(dir);
  if (std::filesystem::equivalent(path.parent_path(), dir / "checkpoints", none) ||
      (!exported.empty() &&
       (std::filesystem::equivalent(path, exported, none) || std::filesystem::equivalent(path, dir, none))))
    fail(Exit::config, "model.weights: a new run in {} removes or renames {}. copy the file, or set another run.dir",
         dir.string(), weights);
}

std::string set_old_export_aside(const std::filesystem::path& dir) {
  const std::filesystem::path exported = old_export(dir);
  if (exported.empty()) return "";
  std::filesystem::path kept = exported;
  kept += ".old";
  std::error_code error;
  std::filesystem::rename(exported, kept, error);
  return error ? "" : fmt::format("the weights that the run before left are now {}", kept.string());
}

void require_same_function(const CheckpointModel& model, const RunConfig& config) {
  // Otherwise Session compares the functions themselves.
  if (model.record && has_comparable_function(*model.record)) return;
  if (const std::string keys = changed_keys(model.config, config.text, changes_function); !keys.empty())
    fail(Exit::config, "{} holds another network: {}. restore these keys, or set run.dir to a new folder",
         model.path.string(), keys);
}

void resume_from(const RunState& run, Session& s) {
  Keys then = run.provenance;
  if (!then.contains("order"))  // written by a version that had only these two orders
    then["order"] = keys_of(run.config)["data.shuffle"] == "off" ? "as stored" : "global";
  then.emplace("sample", SampleView{}.str());  // for checkpoints of versions that had only data.sample = rows
  then.emplace("convolutions", "direct");
  const auto changed = [&](const char* key) {
    const auto it = then.find(key);
    return it != then.end() && it->second != s.provenance().at(key);
  };
  const bool other_batch = changed("global_batch"), other_samples = changed("sample"), other_data = changed("data"),
             other_order = changed("order");
  s.batching.epochs.origin = run.origin;
  if (other_batch || other_samples || other_data || other_order) {
    if (run.step_in_epoch != 0)
      fail(Exit::config,
           "cannot resume {} with another {}: it stopped {} steps into epoch {}, so samples would be skipped or "
           "repeated. restore the old setting until that epoch ends, or set another run.dir",
           s.config.run.dir,
           other_batch
               ? fmt::format("train.global_batch ({} then, {} now)", then.at("global_batch"), s.batching.global_batch)
           : other_samples
               ? fmt::format("kind of samples ({} then, {} now)", then.at("sample"), s.provenance().at("sample"))
           : other_data
               ? fmt::format("set of files in data.train")
               : fmt::format("order of samples ({} then, {} now)", then.at("order"), s.provenance().at("order")),
           run.step_in_epoch, run.epoch_from_1());
    s.batching.epochs.origin = {run.step, run.epoch, run.samples};
  }
  require_same_matrices(keys_of(run.config), keys_of(s.config.text));
  const auto was = then.find("reproducible");
  const bool strict = s.strict() && was != then.end() && was->second == "strict";
  for (const auto& [key, value] : s.provenance())
    if (const auto it = then.find(key);
        it != then.end() && it->second != value && !(strict && (key == "ranks" || key == "threads")))
      log::warn(
          fmt::format("resuming with different {} ({} then, {} now): the results will not be bitwise equal to those of "
                      "an uninterrupted run",
                      key, it->second, value));
  const std::string keys = changed_training_keys(run.config, s.config.text);
  if (!keys.empty() && run.step < s.total_steps()) log::warn(fmt::format("resuming with different {}", keys));
}

std::string changed_training_keys(const std::string& then, const std::string& now) {
  return changed_keys(then, now, decides);
}

}  // namespace millrace
