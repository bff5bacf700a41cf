// Configuration files: the printed configuration resolves to the same configuration.
#include "fuzz.hpp"
#include "millrace/config/options.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace millrace;
  const std::string text(reinterpret_cast<const char*>(data), size);
  fuzz::refuses_or_works([&] {
    const std::string once = print_config(resolve_config({{"a.cfg", text}}, {}));
    const std::string twice = print_config(resolve_config({{"a.cfg", once}}, {}));
    if (once == twice) return;
    std::fprintf(stderr, "%s\n---\n%s\n", once.c_str(), twice.c_str());
    std::abort();
  });
  return 0;
}
