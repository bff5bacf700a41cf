// CSV in memory: one row a line, numbers but for the names of columns and of classes. Private to the data room.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

struct CsvTable {
  std::string path;
  bool header = false;
  std::vector<std::string> columns;  // the header's names; without one, numbers from 1
  std::int64_t rows = 0;
  std::vector<float> values;            // of each row all columns but the label's
  std::vector<double> labels;           // of each row the label column's; with class names their numbers
  std::vector<std::string> classes;     // sorted, where the label column holds words
  std::optional<std::size_t> label_at;  // none: all columns are values
};

// The separator is a semicolon or a tab where the first line has one, else the comma; fields may be in double quotes;
// gzip is unpacked. The first line is a header when not all of it is numbers. label: a column by the header's word or
// by number from 1; "": the only column, where there is one; none: no column. Error(data) with line and column.
CsvTable read_csv(const std::string& path, const std::optional<std::string>& label);

}  // namespace millrace
