"""The commands that meet other programs: each parses, calls the library, and prints."""
