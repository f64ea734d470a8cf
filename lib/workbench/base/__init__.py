"""The ground: errors for people, waiting, addresses of files, worlds and their secrets."""
