#include "train/checkpoint/run_state.hpp"

#include <nlohmann/json.hpp>

#include "millrace/base/error.hpp"
#include "millrace/telemetry/json_text.hpp"

namespace millrace {

using nlohmann::json;

namespace {

Shape shape_from(const json& extents) {
  Shape out;
  for (const json& extent : extents) {
    if (out.rank == Shape::max_rank) fail(Exit::data, "a shape has more than {} extents", Shape::max_rank);
    out.dims[std::size_t(out.rank++)] = extent;
  }
  return out;
}

json to_json(const ValueConversion& v) {
  return {{"scale", v.scale},
          {"offset", v.offset},
          {"channel_scale", v.channel_scale},
          {"channel_offset", v.channel_offset},
          {"transform", name_of(v.transform)},
          {"mean", v.mean},
          {"std", v.std},
          {"normalize_targets", v.normalize_targets},
          {"target_mean", v.target_mean},
          {"target_std", v.target_std}};
}

ValueConversion values_from(const json& j) {
  ValueConversion v;
  v.scale = j.at("scale");
  v.offset = j.at("offset");
  v.channel_scale = j.at("channel_scale").get<std::vector<double>>();
  v.channel_offset = j.at("channel_offset").get<std::vector<double>>();
  v.transform = j.at("transform") == name_of(Transform::log1p) ? Transform::log1p : Transform::none;
  v.mean = j.at("mean").get<std::vector<double>>();
  v.std = j.at("std").get<std::vector<double>>();
  v.normalize_targets = j.at("normalize_targets");
  v.target_mean = j.value("target_mean", std::vector<double>());  // absent: an older millrace
  v.target_std = j.value("target_std", std::vector<double>());
  return v;
}

json to_json(const PlateauState& p) {
  return {{"rate", p.rate}, {"metric", p.metric}, {"best", p.best}, {"waited", p.waited}};
}

PlateauState plateau_from(const json& j) { return {j.at("rate"), j.at("metric"), j.at("best"), j.at("waited")}; }

}  // namespace

std::string to_json(const RunState& r) {
  const StepState& s = r.state;
  return json_text(json{{"step", r.step},
                        {"epoch", r.epoch},
                        {"step_in_epoch", r.step_in_epoch},
                        {"samples", r.samples},
                        {"origin", {r.origin.step, r.origin.epoch, r.origin.samples}},
                        {"unread_samples", {r.unread_samples, r.unread_in_epoch}},
                        {"valid_step", r.valid_step},
                        {"best_step", r.best_step},
                        {"evaluations_since_best", r.evaluations_since_best},
                        {"valid_accuracy", r.valid_accuracy},
                        {"valid_loss", r.valid_loss},
                        {"best_metric", r.best_metric},
                        {"best_value", r.best_value},
                        {"plateau", to_json(r.plateau)},
                        {"loss_scale", s.loss_scale},
                        {"clean_steps", s.clean_steps},
                        {"applied", s.applied},
                        {"attempted", s.attempted},
                        {"provenance", r.provenance},
                        {"config", r.config}});
}

RunState run_state_from_json(const std::string& text) {
  const json j = json::parse(text);
  RunState r;
  r.step = j.at("step");
  r.epoch = j.at("epoch");
  r.step_in_epoch = j.at("step_in_epoch");
  r.samples = j.at("samples");
  if (j.contains("origin")) r.origin = {j["origin"].at(0), j["origin"].at(1), j["origin"].at(2)};
  if (j.contains("unread_samples")) {
    r.unread_samples = j["unread_samples"].at(0);
    r.unread_in_epoch = j["unread_samples"].at(1);
  }
  r.valid_step = j.value("valid_step", std::int64_t(-1));
  r.best_step = j.value("best_step", std::int64_t(-1));
  r.evaluations_since_best = j.value("evaluations_since_best", std::int64_t(0));
  r.valid_accuracy = j.at("valid_accuracy");
  r.valid_loss = j.at("valid_loss");
  if (j.contains("best_metric")) {
    r.best_metric = j["best_metric"];
    r.best_value = j.at("best_value");
  } else if (r.best_step >= 0) {  // written by a version that had only this metric
    r.best_metric = "accuracy";
    r.best_value = j.at("best_accuracy");
  }
  if (j.contains("plateau")) r.plateau = plateau_from(j["plateau"]);
  r.state.loss_scale = j.at("loss_scale");
  r.state.clean_steps = j.at("clean_steps");
  r.state.applied = j.at("applied");
  r.state.attempted = j.at("attempted");
  r.provenance = j.at("provenance").get<std::map<std::string, std::string>>();
  r.config = j.at("config");
  return r;
}

static json inputs_to_json(const std::vector<InputRecord>& inputs) {
  json out = json::array();
  for (const InputRecord& i : inputs)
    out.push_back({{"name", i.name},
                   {"sample", i.sample.extents()},
                   {"type", name_of(i.type)},
                   {"channels_first", i.channels_first},
                   {"values", to_json(i.values)}});
  return out;
}

std::string to_json(const ModelRecord& r) {
  json parts = json::array(), targets = json::array();
  for (const ConcatenatedPart& part : r.parts) parts.push_back({{"name", part.name}, {"count", part.count}});
  for (const ConcatenatedPart& part : r.target_parts)
    targets.push_back({{"name", part.name},
                       {"count", part.count},
                       {"type", name_of(part.dtype)},
                       {"labels", part.labels},
                       {"classes", part.classes}});
  return json_text(json{{"version", r.version},
                        {"function_version", r.function_version},
                        {"function", r.function},
                        {"sample", r.sample.extents()},
                        {"sample_type", name_of(r.sample_type)},
                        {"channels_first", r.channels_first},
                        {"inputs", inputs_to_json(r.inputs)},
                        {"parts", parts},
                        {"labels", r.labels},
                        {"target", r.target.extents()},
                        {"target_name", r.target_name},
                        {"target_parts", targets},
                        {"classes", r.classes.count},
                        {"class_names", r.classes.names},
                        {"label_counts", r.classes.label_counts},
                        {"values", to_json(r.values)},
                        {"split_crc32c", r.split_crc32c},
                        {"network", r.network},
                        {"tokenizer", r.tokenizer}});
}

ModelRecord model_record_from_json(const std::string& text) {
  const json j = json::parse(text);
  ModelRecord r;
  r.version = j.at("version");
  r.function_version = j.at("function_version");
  r.function = j.at("function").get<std::vector<std::string>>();
  r.sample = shape_from(j.at("sample"));
  r.sample_type = parse_dtype(j.at("sample_type").get<std::string>());
  r.channels_first = j.at("channels_first");
  for (const json& i : j.value("inputs", json::array()))  // absent: an older millrace
    r.inputs.push_back({i.at("name"), shape_from(i.at("sample")), parse_dtype(i.at("type").get<std::string>()),
                        i.at("channels_first"), values_from(i.at("values"))});
  for (const json& part : j.at("parts")) r.parts.push_back({part.at("name"), part.at("count")});
  r.target_name = j.value("target_name", "");  // absent: an older millrace
  r.labels = j.at("labels");
  r.target = shape_from(j.at("target"));
  for (const json& part : j.value("target_parts", json::array()))  // absent: an older millrace
    r.target_parts.push_back({part.at("name"), part.at("count"), parse_dtype(part.at("type").get<std::string>()), false,
                              part.at("labels"), part.at("classes")});
  r.classes = {j.at("classes"), j.at("class_names").get<std::vector<std::string>>()};
  if (j.contains("label_counts")) j.at("label_counts").get_to(r.classes.label_counts);  // absent: an older millrace
  r.values = values_from(j.at("values"));
  r.split_crc32c = j.value("split_crc32c", std::uint32_t(0));  // absent: an older millrace
  r.network = j.value("network", "");                          // absent: an older millrace
  r.tokenizer = j.value("tokenizer", "");                      // absent: written before there were tokenizers
  return r;
}

}  // namespace millrace
