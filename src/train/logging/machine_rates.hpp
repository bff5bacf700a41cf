// MachineRates: the rates of arithmetic and memory of the machine that trains, and their file in the user's cache
// folder.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "millrace/train/session/peaks.hpp"
#include "millrace/train/session/session.hpp"

namespace millrace {

struct MachineRates {
  Peaks peaks;
  std::string source;    // "measured", or the data sheet
  int measurements = 0;  // of which `peaks` holds the highest rates
  bool known() const { return peaks.memory_bytes > 0 && peaks.best_flops() > 0; }
  // Takes the higher one of each rate.
  void add(const Peaks&);
};

// The file of one key: what was measured under another key does not count.
class RatesFile {
 public:
  // folder: where the file lies; empty: it is neither read nor written.
  RatesFile(std::string key, const std::filesystem::path& folder);
  std::optional<MachineRates> load() const;  // nullopt: there is none, or not of this key
  // Does nothing if the file cannot be written, or if it is none of this class with this key.
  void save(const MachineRates&) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::string key_;
  std::filesystem::path path_;
};

// millrace/ in $XDG_CACHE_HOME or ~/.cache; empty if neither is known.
std::filesystem::path rates_folder();
// What the rates of a session depend on: host, processor, ranks, threads and precision.
RatesFile rates_file(const Session&);

// The mean rates of the ranks of a session. Of a GPU with a known name they are those of its data sheet. Otherwise they
// are measured, at the same time on all ranks; the first starts with this machine measure them again, and the highest
// ones stay, because other work may have disturbed a measurement. Not known() if they cannot be measured. Collective.
MachineRates machine_rates(Session&);

}  // namespace millrace
