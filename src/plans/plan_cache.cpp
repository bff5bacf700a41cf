#include "millrace/plans/plan_cache.hpp"

#include <fmt/core.h>

#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "millrace/base/error.hpp"
#include "millrace/base/files.hpp"
#include "millrace/base/log.hpp"

namespace millrace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int format = 2;  // 1: times of candidates that were measured one after the other

namespace {

constexpr std::string_view beginning = "{\"format\":";  // of each file; keys are sorted

// Whether no plan cache was written here. A truncated or outdated one is ours; so is an empty file.
bool is_foreign(const std::string& text) { return !text.starts_with(beginning) && !beginning.starts_with(text); }

json json_of(const PlanEntry& entry) {
  json out{{"plan", entry.plan}, {"seconds", entry.seconds}};
  if (entry.disturbed()) out["other_work"] = entry.other_work;
  return out;
}

PlanEntry entry_of(const json& j) {
  PlanEntry out{.plan = j.at("plan"), .seconds = j.at("seconds")};
  out.other_work = j.value("other_work", 0.0);
  return out;
}

}  // namespace

const PlanEntry* PlanCache::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void PlanCache::insert(const std::string& key, PlanEntry entry) {
  changed_ = changed_ || entry.persistent;
  entries_[key] = std::move(entry);
}

std::string PlanCache::serialize() const {
  json plans = json::object();
  for (const auto& [key, entry] : entries_)
    if (entry.persistent) plans[key] = json_of(entry);
  return json{{"format", format}, {"identity", identity_}, {"plans", plans}}.dump();
}

std::string PlanCache::merge(const std::string& text) {
  try {
    const json j = json::parse(text);
    if (j.at("format") != format) return "unknown format";
    if (const std::string other = j.at("identity"); other != identity_)
      return fmt::format("made for {}, but this is {}", other, identity_);
    std::map<std::string, PlanEntry> entries;
    for (const auto& [key, entry] : j.at("plans").items()) entries[key] = entry_of(entry);
    for (auto& [key, entry] : entries) entries_[key] = std::move(entry);
    return "";
  } catch (const json::exception& e) {
    return e.what();
  }
}

std::string PlanCache::replace_with(const std::string& text) {
  try {
    PlanCache other(json::parse(text).at("identity").get<std::string>());
    const std::string why = other.merge(text);
    if (why.empty()) *this = std::move(other);
    return why;
  } catch (const json::exception& e) {
    return e.what();
  }
}

void PlanCache::load(const fs::path& path) {
  std::error_code ignored;
  if (path.empty() || !fs::exists(path, ignored)) return;
  std::string why;
  try {
    const std::string text = read_file(path);
    unwritable_ = is_foreign(text);
    why = unwritable_ ? "it is not a plan cache. remove it, so that choices can be kept there" : merge(text);
  } catch (const Error& e) {
    why = e.what();
  }
  if (!why.empty()) log::warn(fmt::format("{} is not used ({}). kernels are timed again", path.string(), why));
}

void PlanCache::forget_disturbed() {
  std::erase_if(entries_, [](const auto& known) { return known.second.disturbed(); });
}

// What other runs have saved meanwhile stays in the file. It is not used by this run: other ranks do not know it.
std::string PlanCache::serialize_with_those_saved_by_others(const fs::path& path) const {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return serialize();
  const std::string text = read_file(path);
  if (is_foreign(text)) throw std::runtime_error(path.string() + " is not a plan cache");
  PlanCache all(identity_);
  if (!all.merge(text).empty()) return serialize();  // it was made for something else, or is damaged
  for (const auto& [key, entry] : entries_) {
    PlanEntry& saved = all.entries_.try_emplace(key, entry).first->second;
    if (entry.persistent && (!entry.disturbed() || saved.disturbed())) saved = entry;
  }
  return all.serialize();
}

void PlanCache::save(const fs::path& path) {
  if (path.empty() || !changed_ || unwritable_) return;
  try {
    fs::create_directories(path.parent_path());
    write_shared_file(path, serialize_with_those_saved_by_others(path));
    changed_ = false;
  } catch (const std::exception& e) {
    unwritable_ = true;
    log::warn(fmt::format(
        "cannot save the choice of kernels ({}). set XDG_CACHE_HOME to a folder that you can write to", e.what()));
  }
}

fs::path user_cache_file(std::string name) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  fs::path folder;
  if (cache && *cache == '/')
    folder = cache;
  else if (home && *home)
    folder = fs::path(home) / ".cache";
  else
    return {};
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
  return folder / "millrace" / (name + ".json");
}

}  // namespace millrace
