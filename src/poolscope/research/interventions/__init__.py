"""Changes of clouds that keep every mean: what do SOCM and a task see of them?"""
