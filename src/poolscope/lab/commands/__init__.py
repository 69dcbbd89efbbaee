"""The commands of the lab: each parses, calls the library, and prints."""
