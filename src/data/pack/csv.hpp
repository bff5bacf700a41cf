// Reads a CSV table to memory: one row per line, all numbers except for the header and class names. Private to the data
// room.
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
  std::vector<float> values;            // by row: all columns except the label column
  std::vector<double> labels;           // by row: the label column; class names are replaced by their numbers
  std::vector<std::string> classes;     // sorted class names, if the label column holds words
  std::optional<std::size_t> label_at;  // the label column; none: all columns are values
};

// The separator is a semicolon or a tab if the first line contains one, else a comma. Fields may be in double quotes.
// Gzip files are unpacked. The first line is a header unless all of its fields are numbers. label: the label column, by
// its name in the header or its number from 1; "": the only column of a table with one column; none: no label column.
// Error(data) names line and column.
CsvTable read_csv(const std::string& path, const std::optional<std::string>& label);

}  // namespace millrace
