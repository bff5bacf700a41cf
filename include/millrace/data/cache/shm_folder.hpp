// Folders of copies in /dev/shm, one for each run and data set. Internal to data/cache.
#pragma once
#include <string>

namespace millrace {

std::string new_shm_folder_name();  // no folder of this name exists
// Creates the folder and locks it. Returns a descriptor, which holds the lock as long as it is open. Error(config).
int create_shm_folder(const std::string&);
// Removes the folders of this user that no process has locked: those of runs that were killed.
void remove_stale_shm_folders();

// The folders that this process uses now. remove_used_shm_folders() removes them when the process ends because of an
// error, in which case no destructor runs. It never throws, and opens no file.
void use_shm_folder(const std::string&);
void forget_shm_folder(const std::string&, bool remove);
void remove_used_shm_folders() noexcept;

}  // namespace millrace
