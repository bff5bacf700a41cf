#include "millrace/config/keys.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "config/key_groups.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"

namespace millrace {

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> k;
    add_run_keys(k);
    add_data_keys(k);
    add_model_keys(k);
    add_train_keys(k);
    add_optim_keys(k);
    add_comm_keys(k);
    add_checkpoint_keys(k);
    add_cpu_keys(k);
    add_cuda_keys(k);
    add_log_keys(k);
    add_account_keys(k);
    add_test_keys(k);
    return k;
  }();
  return table;
}

const std::vector<KeyAlias>& key_aliases() {
  static const std::vector<KeyAlias> table = {
      {"comm.compress", "comm.grad_dtype"},
      {"comm.bucket", "comm.bucket_size"},
      {"data.zoom", "data.random_resized_crop"},
      {"cuda.channels", "cuda.nccl_max_ctas"},
      {"cuda.graph_batches", "cuda.graph_micro_batches"},
      {"cuda.tune", "cuda.autotune"},
      {"optim.trust", "optim.trust_coefficient"},
      {"log.trace", "log.profile_steps"},
      {"train.test_force_overflow_at", "test.force_overflow_at"},
      {"train.test_compute", "test.compute_delay"},
      {"comm.test_delay", "test.all_reduce_delay"},
  };
  return table;
}

std::string current_key_name(const std::string& name) {
  for (const auto* table : {&key_aliases(), &key_synonyms()})
    for (const KeyAlias& alias : *table)
      if (alias.old_name == name) return alias.name;
  return name;
}

const Key* find_key(const std::string& name) {
  const std::string current = current_key_name(name);
  const auto found = std::find_if(keys().begin(), keys().end(), [&](const Key& key) { return key.name == current; });
  return found == keys().end() ? nullptr : &*found;
}

void warn_if_renamed(const std::string& where, const std::string& written, const Key& key) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  if (written == key.name) return;
  const std::lock_guard lock(mutex);
  if (!warned.insert(written).second) return;
  const auto& former = key_aliases();
  if (std::any_of(former.begin(), former.end(), [&](const KeyAlias& alias) { return alias.old_name == written; }))
    log::warn(fmt::format("{}: {} is deprecated. use {} instead", where, written, key.name));
  else
    log::info(fmt::format("{}: {} is read as {}{}", where, written, key.name,
                          key.name == "train.global_batch" ? ", the samples of a step over all ranks" : ""));
}

std::string value_text(const RunConfig& config, const std::string& name) {
  const Key* key = find_key(name);
  MR_CHECK(key);
  return join_words(*key, key->get(config));
}

const char* group_title(const std::string& group) {
  static const std::pair<const char*, const char*> titles[] = {
      {"run", "the run as a whole"},
      {"data", "what is read, and how"},
      {"model", "the network"},
      {"train", "length of the training and batch sizes"},
      {"optim", "the optimizer and its learning rate"},
      {"comm", "communication between ranks"},
      {"checkpoint", "saved states"},
      {"cpu", "steps on CPUs"},
      {"cuda", "steps on GPUs"},
      {"log", "progress lines, metrics and traces"},
      {"account", "measuring at the end of a run"},
  };
  for (const auto& [name, title] : titles)
    if (group == name) return title;
  return "";
}

}  // namespace millrace
