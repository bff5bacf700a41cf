// Diagnosis: finds what bounds a training by disabling one part after the other, then tries changes of single keys
// against it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "millrace/advisor/rules/verdict.hpp"
#include "millrace/advisor/trials/probe.hpp"
#include "millrace/config/arguments.hpp"

namespace millrace {

struct DiagnosisResult {
  BottleneckMetrics metrics;
  std::vector<Trial> trials;
  std::string parts;  // tables: parts of the input, operations of a micro-batch, and the device's peak rates
};

struct DiagnoseOptions {
  double seconds = 1;   // of each measurement, approximately; there are 10 to 40
  double budget = 120;  // seconds after which no further trial begins
};

// run: the metrics of a finished run, for what single steps do not show; by default there was none. layers: the file
// for the operations beside their roofline (layers.json); empty: none is written. Collective.
DiagnosisResult diagnose(World&, const ParsedArguments&, const RunConfig&, const DiagnoseOptions&,
                         const BottleneckMetrics& run = {}, const std::filesystem::path& layers = {});

}  // namespace millrace
