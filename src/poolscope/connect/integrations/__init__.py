"""poolscope inside other libraries: import the module of the library you use; nothing is imported here."""
