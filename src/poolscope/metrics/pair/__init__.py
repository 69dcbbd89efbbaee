"""Two texts side by side: their clouds and the tokens that part them."""
