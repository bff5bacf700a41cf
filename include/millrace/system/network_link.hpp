// The links that connect this host to others.
#pragma once
#include <filesystem>
#include <string>

namespace millrace {

// A link that communication between ranks may use.
struct NetworkLink {
  enum class Kind { interface, infiniband, nvlink };
  std::string name;  // "eth0", "mlx5_0", "18 NVLinks"; empty: no link reports its rate
  double rate = 0;   // nominal bytes/s
  Kind kind = Kind::interface;
};

// The fastest link out of this host that is up, according to the kernel. Interfaces without hardware do not count.
// root: where the kernel's /sys is mounted.
NetworkLink fastest_network_link(const std::filesystem::path& root = "/sys");

}  // namespace millrace
