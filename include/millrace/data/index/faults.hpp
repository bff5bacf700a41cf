// What is done about files that cannot be read, or not in time. Needs nothing while all goes well.
#pragma once

namespace millrace {

enum class OnError { stop, skip };

struct FaultOptions {
  // skip: a sample that cannot be read, or does not decode, keeps its place in its micro-batch, with zeros as its
  // values and -1 as its label, which counts for nothing. So all other samples are where they would be without the
  // fault, on every rank. Needs labels.
  OnError on_error = OnError::stop;
  double skip_limit = 0.01;   // skip: a larger share of an epoch's samples ends the run
  int retries = 5;            // of a read whose error may pass, each after a wait
  double retry_delay = 0.1;   // seconds before the first of them; doubles each time, up to 5
  double slow_read = 30;      // seconds after which a read that has not ended is warned of, once a file; 0: never
  double read_timeout = 500;  // seconds after which such a read ends the run; 0: never
};

}  // namespace millrace
