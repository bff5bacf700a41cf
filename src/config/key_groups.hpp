// The makers of the key table, one for each group of keys. Each appends its keys in the order in which they are
// printed.
#pragma once
#include <vector>

#include "millrace/config/keys.hpp"

namespace millrace {

using Keys = std::vector<Key>;

void add_run_keys(Keys&);
void add_data_keys(Keys&);
void add_split_keys(Keys&);  // of [data]; add_data_keys() calls it
void add_model_keys(Keys&);
void add_train_keys(Keys&);
void add_optim_keys(Keys&);
void add_comm_keys(Keys&);
void add_checkpoint_keys(Keys&);
void add_cpu_keys(Keys&);
void add_cuda_keys(Keys&);
void add_log_keys(Keys&);
void add_account_keys(Keys&);
void add_test_keys(Keys&);

}  // namespace millrace
