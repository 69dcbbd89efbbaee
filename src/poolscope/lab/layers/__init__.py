"""What every layer does to the clouds: spread, attention, high frequencies."""
