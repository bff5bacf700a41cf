// Folders of copies in /dev/shm, one a run and data set. Private to the data room.
#pragma once
#include <string>

namespace millrace {

std::string new_shm_folder_name();  // a new name
// Returns the descriptor of a lock, which is the folder's as long as it is open. Error(config).
int create_shm_folder(const std::string&);
// Removes this user's that no process has locked: of runs that were killed.
void remove_stale_shm_folders();

}  // namespace millrace
