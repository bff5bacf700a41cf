// Class names, by label. Files hold them in the attribute class_names of the root group, one name per line.
#pragma once
#include <string>
#include <vector>

namespace millrace {

std::string join_class_names(const std::vector<std::string>& class_names);
std::vector<std::string> parse_class_names(const std::string& lines);

// Describes the first label that two data sets name differently: "label 3 is 'cat', not 'dog' as". The caller continues
// with "in" and the name of the second data set. "" if all names agree, or if one data set has no names.
std::string first_class_mismatch(const std::vector<std::string>& here, const std::vector<std::string>& there);

}  // namespace millrace
