#include "train/session/exported_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/model/pt2/import.hpp"

namespace millrace {
namespace {

// The first names of a list.
std::string some_of(std::vector<std::string> names) {
  constexpr std::size_t most = 5;
  const bool more = names.size() > most;
  if (more) names.resize(most);
  return fmt::format("{}{}", fmt::join(names, ", "), more ? ", ..." : "");
}

void warn_once(const pt2::ExportedProgram& program) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  const std::string path = program.path.string();
  if (!warned.insert(path).second) return;
  if (const auto unused = pt2::unused_parameters(program); !unused.empty())
    log::warn(fmt::format("{}: the network does not use {} of its parameters: {}. they are not trained", path,
                          unused.size(), some_of(unused)));
  std::vector<std::string> constant;
  for (const pt2::StoredTensor& t : program.tensors)
    if (t.parameter && !t.requires_grad) constant.push_back(t.name);
  if (!constant.empty())
    log::warn(
        fmt::format("{}: {} parameters had no gradient in PyTorch, but are trained here: {}. freeze them with "
                    "train.freeze",
                    path, constant.size(), some_of(constant)));
}

void require_file(const ModelOptions& options) {
  std::error_code none;
  if (!std::filesystem::exists(options.file, none))
    fail(Exit::config, "model.file: there is no {} in {}. write it with torch.export.save, or correct the path",
         options.file, std::filesystem::current_path(none).string());
}

}  // namespace

std::shared_ptr<const pt2::ExportedProgram> read_exported_network(const ModelOptions& options, const std::string& text,
                                                                  bool training) {
  if (options.name != ModelName::pt2) return nullptr;
  const std::filesystem::path path = options.file;
  std::error_code none;
  if (!text.empty() && !(std::filesystem::exists(path, none) && training))
    return std::make_shared<const pt2::ExportedProgram>(pt2::read_program_text(path, text));
  require_file(options);
  auto program = std::make_shared<const pt2::ExportedProgram>(pt2::read_exported_program(path));
  pt2::require_understood(*program);
  warn_once(*program);
  return program;
}

std::int64_t exported_input_count(World& world, const ModelOptions& options) {
  std::int64_t count = 0;
  std::string problem;
  Exit code = Exit::config;
  try {
    require_file(options);
    if (world.rank() == 0) count = std::ssize(pt2::read_exported_program(options.file).user_inputs);
  } catch (const Error& e) {
    problem = e.what();
    code = e.code();
  }
  world.agree(code, problem);
  world.broadcast(&count, sizeof count, 0);
  return count;
}

std::string network_text(const NetworkSpec& spec) {
  const pt2::ExportedProgram* program = spec.model.exported.get();
  if (!program) return "";
  if (!program->text.empty()) return program->text;
  const Graph graph = graph_of(spec, 1, Mode::infer);
  std::vector<const pt2::StoredTensor*> trained;
  const auto add = [&](int tensor, std::int64_t count) {  // if the checkpoint has all of it
    if (tensor < 0) return;
    const pt2::StoredTensor& t = program->tensors[std::size_t(tensor)];
    if (t.count() == count) trained.push_back(&t);
  };
  for (const Parameter& p : graph.parameters) add(p.archive.tensor, p.archive.extents.count());
  for (const RunningStats& s : graph.stats) {
    add(s.archive_mean, s.channels);
    add(s.archive_variance, s.channels);
  }
  return pt2::program_text(*program, [&](const pt2::StoredTensor& t) {
    return std::ranges::any_of(trained, [&](const pt2::StoredTensor* other) { return other->same_storage(t); });
  });
}

}  // namespace millrace
