"""The ground: errors for people, waiting, where things lie, files of the lake, worlds and their secrets."""
