// Names of classes by label, as the attribute class_names of / holds them: a line each.
#pragma once
#include <string>
#include <vector>

namespace millrace {

std::string lines_of(const std::vector<std::string>& class_names);
std::vector<std::string> class_names_of(const std::string& lines);

// In words the first label that two data sets name differently, such as "label 3 is 'cat', not 'dog' as", before "in"
// and the other. "" where none is, or where one of them has no names.
std::string differing_class(const std::vector<std::string>& here, const std::vector<std::string>& there);

}  // namespace millrace
