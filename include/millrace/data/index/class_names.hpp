// Names of classes by label, as the attribute class_names of / holds them: a line each.
#pragma once
#include <string>
#include <vector>

namespace millrace {

std::string join_class_names(const std::vector<std::string>& class_names);
std::vector<std::string> parse_class_names(const std::string& lines);

// In words the first label that two data sets name differently, such as "label 3 is 'cat', not 'dog' as", before "in"
// and the other. "" where none is, or where one of them has no names.
std::string first_class_mismatch(const std::vector<std::string>& here, const std::vector<std::string>& there);

}  // namespace millrace
