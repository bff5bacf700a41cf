#include <cstdlib>

#include "comm/shared_memory.hpp"
#include "millrace/base/error.hpp"
#include "millrace/base/pages.hpp"
#include "millrace/base/units.hpp"

namespace millrace {

MappedRegion make_private_region(std::size_t bytes) {
  MappedRegion region;
  region.bytes = padded_to_pages(bytes);
  region.owner = {allocate_pages(bytes), &std::free};
  region.mine = region.owner.get();
  region.peers = {region.mine};
  if (!region.mine) fail(Exit::config, "cannot allocate {} for gradients. use a smaller model", format_bytes(bytes));
  return region;
}

}  // namespace millrace
