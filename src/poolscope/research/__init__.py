"""The papers' experiments: correlations over models, published runs, interventions, transport."""
