"""Published experiments from data to tables and figures, as far as models and texts can be reached."""
