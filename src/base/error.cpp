#include "millrace/base/error.hpp"

#include <charconv>

namespace millrace {
namespace {

template <class Number, class... Format>
std::string_view written(char* from, std::size_t space, Number v, Format... format) {
  return {from, std::size_t(std::to_chars(from, from + space, v, format...).ptr - from)};
}

}  // namespace

MessagePart::MessagePart(long long v) : text_(written(digits_, sizeof(digits_), v)) {}
MessagePart::MessagePart(unsigned long long v) : text_(written(digits_, sizeof(digits_), v)) {}
MessagePart::MessagePart(double v) : text_(written(digits_, sizeof(digits_), v, std::chars_format::general, 6)) {}

std::string concatenate(std::initializer_list<MessagePart> parts) {
  std::size_t size = 0;
  for (const MessagePart& part : parts) size += part.text().size();
  std::string out;
  out.reserve(size);
  for (const MessagePart& part : parts) out += part.text();
  return out;
}

}  // namespace millrace
