# Copies of remote objects on disk and in memory.
