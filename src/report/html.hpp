// Words and numbers as HTML. Pass all text that was read from a file through escaped().
#pragma once
#include <string>
#include <string_view>

namespace millrace::report {

std::string escaped(std::string_view);       // safe in text and in attributes with double quotes
std::string number(double, int digits = 3);  // "0.0123", "12.3 k" with significant digits; "–" when not finite
std::string integer_text(double);            // "9876", "123 456"
std::string bytes_text(double);              // "304 B", "2.05 kB"
std::string fixed(double, int decimals);     // "12.30"
std::string seconds_text(double);            // "4.10 ms", "12.3 s", "2 h 05 min"
std::string percent(double share);           // "12.3 %" for 0.123

}  // namespace millrace::report
