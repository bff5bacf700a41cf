// The links that connect this host to others.
#pragma once
#include <filesystem>
#include <string>

namespace millrace {

// A way that sums may take from a rank to others.
struct NetworkLink {
  enum class Kind { interface, infiniband, nvlink };
  std::string name;  // "eth0", "mlx5_0", "18 NVLinks"; empty: none that tells its rate
  double rate = 0;   // bytes/s that it is made for
  Kind kind = Kind::interface;
};
// The fastest out of this host of those that are up, as the kernel knows them; interfaces without hardware are none.
// root: where the kernel's /sys is.
NetworkLink fastest_network_link(const std::filesystem::path& root = "/sys");

}  // namespace millrace
