"""The mathematics: numpy in, numpy out; it meets neither files nor pixels."""
