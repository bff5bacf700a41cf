// Reads the links from sysfs. The kernel documents it in Documentation/ABI/testing/sysfs-class-net and
// sysfs-class-infiniband.
#include "millrace/system/network_link.hpp"

#include <fstream>
#include <string>

namespace millrace {
namespace {

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number at the beginning of the text; 0: there is none.
double number_in(const std::string& text) { return text.empty() ? 0 : std::strtod(text.c_str(), nullptr); }

}  // namespace

NetworkLink fastest_network_link(const std::filesystem::path& root) {
  namespace fs = std::filesystem;
  NetworkLink best;
  const auto offer = [&best](NetworkLink link) {
    if (link.rate > best.rate) best = std::move(link);
  };
  std::error_code none;
  for (const auto& device : fs::directory_iterator(root / "class/infiniband", none))
    for (const auto& port : fs::directory_iterator(device.path() / "ports", none))
      if (first_line(port.path() / "state").find("ACTIVE") != std::string::npos)  // "4: ACTIVE", "100 Gb/sec (4X EDR)"
        offer({device.path().filename(), number_in(first_line(port.path() / "rate")) * 1e9 / 8,
               NetworkLink::Kind::infiniband});
  // Bridges and the virtual pairs of containers do not leave the host, whatever speed they report. A bond does; it
  // reports the speed of its links together.
  const auto leaves_the_host = [&](const fs::path& i) {
    return fs::exists(i / "device", none) || fs::exists(i / "bonding", none);
  };
  for (const auto& device : fs::directory_iterator(root / "class/net", none))
    if (leaves_the_host(device.path()) && first_line(device.path() / "operstate") == "up")
      // in Mbit/s; reading fails or gives -1 if it is not known
      offer({device.path().filename(), number_in(first_line(device.path() / "speed")) * 1e6 / 8});
  return best;
}

}  // namespace millrace
