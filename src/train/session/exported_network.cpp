#include "train/session/exported_network.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <mutex>
#include <set>

#include "millrace/base/error.hpp"
#include "millrace/base/log.hpp"
#include "millrace/model/pt2/import.hpp"

namespace millrace {
namespace {

void warn_of_unused(const pt2::ExportedProgram& program) {
  static std::mutex mutex;
  static std::set<std::string> warned;
  const std::lock_guard lock(mutex);
  std::vector<std::string> unused = pt2::unused_parameters(program);
  if (unused.empty() || !warned.insert(program.path.string()).second) return;
  const std::size_t count = unused.size();
  constexpr std::size_t most = 5;
  if (count > most) unused.resize(most);
  log::warn(fmt::format("{}: the network does not use {} of its parameters: {}{}. they are not trained",
                        program.path.string(), count, fmt::join(unused, ", "), count > most ? ", ..." : ""));
}

}  // namespace

std::shared_ptr<const pt2::ExportedProgram> read_exported_network(const ModelOptions& options) {
  if (options.name != ModelName::pt2) return nullptr;
  const std::filesystem::path path = options.file;
  std::error_code none;
  if (!std::filesystem::exists(path, none))
    fail(Exit::config, "model.file: there is no {} in {}. write it with torch.export.save, or correct the path",
         options.file, std::filesystem::current_path(none).string());
  auto program = std::make_shared<const pt2::ExportedProgram>(pt2::read_exported_program(path));
  pt2::require_understood(*program);
  warn_of_unused(*program);
  return program;
}

}  // namespace millrace
