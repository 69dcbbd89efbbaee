"""One way to show a result: one table, one sheet of panels, one screen, one notebook view, one page."""
