// Words and numbers as HTML. Everything that was read from a file goes through escaped().
#pragma once
#include <string>
#include <string_view>

namespace millrace::report {

std::string escaped(std::string_view);       // fit for text and for attributes in double quotes
std::string number(double, int digits = 3);  // "0.0123", "12.3 k" of so many significant digits; "–" when not finite
std::string whole(double);                   // "9876", "123 456"
std::string bytes_text(double);              // "304 B", "2.05 kB"
std::string fixed(double, int decimals);     // "12.30"
std::string seconds_text(double);            // "4.10 ms", "12.3 s", "2 h 05 min"
std::string percent(double share);           // of 0.123: "12.3 %"

}  // namespace millrace::report
