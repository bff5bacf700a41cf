#include "run_state.hpp"

#include <nlohmann/json.hpp>

namespace millrace {

using nlohmann::json;

std::string to_json(const RunState& r) {
  const StepState& s = r.state;
  return json{{"step", r.step},
              {"epoch", r.epoch},
              {"step_in_epoch", r.step_in_epoch},
              {"samples", r.samples},
              {"valid_accuracy", r.valid_accuracy},
              {"valid_loss", r.valid_loss},
              {"best_accuracy", r.best_accuracy},
              {"loss_scale", s.loss_scale},
              {"clean_steps", s.clean_steps},
              {"applied", s.applied},
              {"attempted", s.attempted},
              {"provenance", r.provenance},
              {"config", r.config}}
      .dump();
}

RunState run_state_from_json(const std::string& text) {
  const json j = json::parse(text);
  RunState r;
  r.step = j.at("step");
  r.epoch = j.at("epoch");
  r.step_in_epoch = j.at("step_in_epoch");
  r.samples = j.at("samples");
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
