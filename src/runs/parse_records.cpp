#include "runs/parse_records.hpp"

#include <fmt/core.h>

#include <type_traits>

#include "millrace/base/error.hpp"

namespace millrace {
namespace {

using nlohmann::json;

std::string text_of(const json& j) { return j.is_string() ? j.get<std::string>() : j.dump(); }

// The members of one JSON object.
class Fields {
 public:
  Fields(const json& object, FieldMode mode) : object_(object), strict_(mode == FieldMode::strict) {}

  template <class T>
  T number(const char* key, T missing) const {
    if (strict_) return object_.at(key).get<T>();
    const auto it = object_.find(key);
    return it != object_.end() && it->is_number() ? it->template get<T>() : missing;
  }
  std::string text(const char* key) const {
    if (strict_) return text_of(object_.at(key));
    const auto it = object_.find(key);
    return it != object_.end() && it->is_string() ? it->get<std::string>() : "";
  }
  bool flag(const char* key) const {
    if (strict_) return object_.at(key).get<bool>();
    const auto it = object_.find(key);
    return it != object_.end() && it->is_boolean() && it->get<bool>();
  }
  // A number that may be null or missing in either mode.
  std::optional<double> optional(const char* key) const {
    const auto it = object_.find(key);
    if (it == object_.end() || it->is_null() || (!strict_ && !it->is_number())) return std::nullopt;
    return it->get<double>();
  }
  Fields object(const char* key) const { return {strict_ ? object_.at(key) : member(key, json::object()), mode()}; }
  std::vector<Fields> objects(const char* key) const {
    std::vector<Fields> out;
    for (const json& one : strict_ ? object_.at(key) : member(key, json::array()))
      if (strict_ || one.is_object()) out.emplace_back(one, mode());
    return out;
  }
  bool has(const char* key) const { return object_.contains(key); }
  Fields lenient() const { return {object_, FieldMode::lenient}; }

 private:
  FieldMode mode() const { return strict_ ? FieldMode::strict : FieldMode::lenient; }
  // The member, or an empty value of the same JSON type as `empty` where there is no such member.
  const json& member(const char* key, const json& empty) const {
    static const json no_object = json::object(), no_array = json::array();
    const auto it = object_.find(key);
    if (it != object_.end() && it->type() == empty.type()) return *it;
    return empty.is_object() ? no_object : no_array;
  }
  const json& object_;
  bool strict_;
};

std::string data_text(const json& d) {
  const auto files = d.at("files").get<long long>();
  return fmt::format("{} samples of {} {} in {}{}", d.at("rows").get<long long>(), text_of(d.at("sample")),
                     text_of(d.at("dtype")), files, files == 1 ? " file" : " files");
}

std::vector<std::pair<std::string, std::string>> facts_of(const json& j) {
  std::vector<std::pair<std::string, std::string>> out;
  out.emplace_back("training data", data_text(j.at("train")));
  if (!j.at("valid").is_null()) out.emplace_back("validation data", data_text(j.at("valid")));
  for (const auto& [key, value] : j.at("resolved").items()) out.emplace_back(key, text_of(value));
  for (const auto& [key, value] : j.at("libraries").items()) out.emplace_back(key, text_of(value));
  return out;
}

std::vector<std::string> changed_keys_of(const json& j) {
  std::vector<std::string> out;
  if (const auto it = j.find("changed"); it != j.end() && it->is_array())
    for (const json& one : *it)
      if (one.is_string()) out.push_back(one.get<std::string>());
  return out;
}

std::vector<EarlierStart> earlier_starts_of(const json& j) {
  std::vector<EarlierStart> out;
  const auto it = j.find("earlier");
  if (it == j.end() || !it->is_array()) return out;
  for (const json& one : *it) {
    if (!one.is_object()) continue;
    const Fields fields(one, FieldMode::lenient);
    out.push_back({fields.text("started"), fields.number("resumed_at_step", std::int64_t(0)),
                   fields.optional("seconds"), changed_keys_of(one)});
  }
  return out;
}

std::vector<Advice> advice_of(const std::vector<Fields>& items, bool with_gain) {
  std::vector<Advice> out;
  for (const Fields& f : items)
    out.push_back({with_gain ? f.number("gain", 1.0) : 0.0, with_gain && f.flag("at_most"), f.text("evidence"),
                   f.text("advice"), f.text("caution")});
  return out;
}

}  // namespace

RunRecord parse_record(const json& j, FieldMode mode) {
  const Fields fields(j, mode), optional = fields.lenient();
  RunRecord out;
  out.started = fields.text("started");
  out.pid = optional.number("pid", 0);
  out.device = fields.text("device");
  out.collective = fields.text("collective");
  out.precision = optional.object("provenance").text("precision");
  out.resumed_at_step = fields.number("resumed_at_step", std::int64_t(0));
  out.planned_steps = fields.object("resolved").number("steps", std::int64_t(0));
  out.steps_per_epoch = optional.object("resolved").number("steps_per_epoch", std::int64_t(0));
  out.earlier = earlier_starts_of(j);
  out.changed = changed_keys_of(j);
  for (const Fields& rank : fields.objects("ranks")) out.ranks.emplace_back(rank.text("host"), rank.text("placement"));
  if (mode == FieldMode::strict) out.facts = facts_of(j);
  return out;
}

RunSummary parse_summary(const json& j, FieldMode mode) {
  const Fields fields(j, mode), optional = fields.lenient();
  RunSummary out;
  out.started = optional.text("started");
  out.pid = optional.number("pid", 0);
  out.status = fields.text("status");
  out.steps = fields.number("steps", std::int64_t(-1));
  out.epoch = fields.number("epoch", std::int64_t(0));
  out.samples = fields.number("samples", std::int64_t(0));
  out.unread_samples = optional.number("unread_samples", std::int64_t(0));
  out.samples_per_second = fields.number("samples_per_second", 0.0);
  out.seconds = fields.number("seconds", 0.0);
  out.loss = fields.optional("loss");
  out.valid_loss = fields.optional("valid_loss");
  out.valid_accuracy = fields.optional("valid_accuracy");
  out.valid_top5 = fields.optional("valid_top5");
  const Fields light = optional.object("speed_of_light");
  out.speed_of_light = light.optional("share");
  for (const Fields& op : light.objects("operations"))
    out.operations.push_back({op.text("name"), op.text("kind"), op.number("step_ms", 0.0), op.number("least_ms", 0.0)});
  out.cuda_graph = optional.text("cuda_graph");
  out.verdict = optional.text("verdict");
  out.findings = advice_of(fields.objects("findings"), true);
  if (fields.has("hints")) out.hints = advice_of(fields.objects("hints"), false);
  if (mode == FieldMode::strict) out.account = Account::from_json(j.at("account").dump());
  return out;
}

std::vector<LayerTiming> parse_layers(const json& j) {
  std::vector<LayerTiming> out;
  for (const json& op : j.at("operations"))
    out.push_back(
        {op.at("name"), op.at("implementation"), op.at("forward_ms"), op.at("backward_ms"), op.at("least_ms")});
  return out;
}

}  // namespace millrace
