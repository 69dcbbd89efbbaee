"""SOCM: the means of two texts agree while their token clouds differ."""
