#include "train/checkpoint/run_state.hpp"

#include <nlohmann/json.hpp>

#include "millrace/telemetry/json_text.hpp"

namespace millrace {

using nlohmann::json;

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
                        {"valid_accuracy", r.valid_accuracy},
                        {"valid_loss", r.valid_loss},
                        {"best_accuracy", r.best_accuracy},
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
  r.valid_accuracy = j.at("valid_accuracy");
  r.valid_loss = j.at("valid_loss");
  r.best_accuracy = j.at("best_accuracy");
  r.state.loss_scale = j.at("loss_scale");
  r.state.clean_steps = j.at("clean_steps");
  r.state.applied = j.at("applied");
  r.state.attempted = j.at("attempted");
  r.provenance = j.at("provenance").get<std::map<std::string, std::string>>();
  r.config = j.at("config");
  return r;
}

}  // namespace millrace
