// FaultOptions: how to treat files that cannot be read, or not in time.
#pragma once

namespace millrace {

enum class OnError { stop, skip };

struct FaultOptions {
  // skip: a sample that cannot be read or decoded keeps its place in the micro-batch, with zeros as its values and -1
  // as its label, which the loss ignores. All other samples keep their places too, on every rank. Needs labels.
  OnError on_error = OnError::stop;
  double skip_limit = 0.01;   // skip: the run ends if more than this fraction of an epoch's samples is skipped
  int retries = 5;            // retries of a read after a transient error
  double retry_delay = 0.1;   // seconds before the first retry; doubles each time, up to 5
  double slow_read = 30;      // seconds after which an unfinished read causes a warning, once per file; 0: never
  double read_timeout = 500;  // seconds after which an unfinished read ends the run; 0: never
};

}  // namespace millrace
